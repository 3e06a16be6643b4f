# SPDX-License-Identifier: GPL-2.0-only
"""Is an object of the kernel as large as up to the next symbol, and unknown where there is none?"""

from __future__ import annotations

from orchestrator.probes.symbols import Symbols

LISTING = b"""\
c1000000 T _stext
c17a8ee0 d kpcache
c17cceb0 d behind
c1800000 d twice
c1800010 d twice
c1900000 T kpcache_get
c2000000 b last
"""


def test_an_object_ends_at_the_next_symbol() -> None:
    assert Symbols(LISTING).object_size("kpcache") == 0x23FD0


def test_what_is_no_object_twice_there_or_the_last_has_no_size() -> None:
    for name in ("kpcache_get", "twice", "last", "nothing", "kp.ache"):
        assert Symbols(LISTING).object_size(name) is None
