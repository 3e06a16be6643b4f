# SPDX-License-Identifier: GPL-2.0-only
"""From where can a probed function have been called, by the return address that a recorded event has?"""

from __future__ import annotations

import pytest

from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols

LISTING = b"""\
c1000000 T _stext
c1000040 T mutex_lock_killable
c1000800 T _etext
c1800000 D data
d0846050 t loop_control_ioctl\t[loop]
d0950000 t vp_notify\t[virtio_pci]
"""
SYMBOLS = Symbols(LISTING, frozenset({"loop"}))
IN_TEXT, BEHIND_TEXT, LOADED, OTHER = 0xC1000100, 0xC1800010, 0xD0846080, 0xD0950010


@pytest.mark.parametrize(("module", "callers"), [(None, {IN_TEXT, LOADED}), ("loop", {IN_TEXT, LOADED, OTHER})])
def test_callers_of_a_function(module: str | None, callers: set[int]) -> None:
    """What the experiment has loaded may call the kernel: a workload with its modules is probed anywhere."""
    point = ProbePoint("mutex_lock_killable", 0, 0xC1000040, b"", module=module)
    assert {one for one in (IN_TEXT, BEHIND_TEXT, LOADED, OTHER, 0) if point.is_callers(one, SYMBOLS)} == callers


def test_without_modules_only_the_kernel_s_text_calls_it() -> None:
    point = ProbePoint("mutex_lock_killable", 0, 0xC1000040, b"")
    plain = Symbols(LISTING)
    assert [one for one in (IN_TEXT, BEHIND_TEXT, LOADED, OTHER) if point.is_callers(one, plain)] == [IN_TEXT]
