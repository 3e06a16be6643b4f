# SPDX-License-Identifier: GPL-2.0-only
"""Are a kernel's functions and objects found in its list, and nothing that only looks like one?"""

from __future__ import annotations

import pytest
from guest_with_files import guest_with

from orchestrator.errors import EvidenceError
from orchestrator.probes.symbols import KALLSYMS, Symbols

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


FUNCTIONS = Symbols(b"""\
c1000000 T _stext
c1000010 t twice
c1000020 t twice
c1000040 T __ia32_sys_getpid
c1000040 t __do_sys_getpid
c1000040 r table
c1000060 t module_like
nonsense
d0846050 t module_like\t[mine]
d0846090 t only_in_a_module\t[mine]
""")


def test_a_function_of_the_kernels_own_has_one_address() -> None:
    assert FUNCTIONS.address("__do_sys_getpid") == 0xC1000040
    assert FUNCTIONS.address("module_like") == 0xC1000060
    assert FUNCTIONS.size("__ia32_sys_getpid") == 0x20
    for name, message in (
        ("twice", "2 functions twice"),
        ("table", "no function"),
        ("only_in_a_module", "no function"),
    ):
        with pytest.raises(EvidenceError, match=message):
            FUNCTIONS.address(name)


def test_a_function_of_a_module_that_is_named_is_found_where_the_kernel_has_none() -> None:
    with_mine = Symbols(FUNCTIONS._listing, frozenset({"mine", "other"}))
    assert with_mine.address("only_in_a_module") == 0xD0846090
    assert with_mine.address("module_like") == 0xC1000060
    assert [with_mine.functions(name) for name in ("only_in_a_module", "nothing")] == [1, 0]
    assert [with_mine.module(address) for address in (0xD0846092, 0xC1000060)] == ["mine", None]
    with pytest.raises(EvidenceError, match="no function only_in_a_module"):
        Symbols(FUNCTIONS._listing, frozenset({"other"})).address("only_in_a_module")


def test_all_names_of_a_function_are_known_and_no_object_is_one() -> None:
    assert FUNCTIONS.names(0xC1000040) == {"__ia32_sys_getpid", "__do_sys_getpid"}
    assert FUNCTIONS.names(0xC1000041) == frozenset()


MODULES = b"""\
c1000060 T vfs_read
d0846050 t exit_mine\t[mine]
d0846050 t cleanup_module\t[mine]
d0846090 t vfs_read\t[mine]
d08460a0 t helper\t[mine]
d08460c0 r table\t[mine]
d0849000 t helper\t[other]
d0849040 t vfs_read\t[other]
d0849080 t alone\t[third]
"""


def test_a_module_s_function_has_aliases_as_one_of_the_kernel_has() -> None:
    symbols = Symbols(MODULES, frozenset({"mine"}))
    assert symbols.names(0xD0846050) == {"exit_mine", "cleanup_module"}
    assert symbols.address("cleanup_module") == symbols.address("exit_mine")


def test_who_shares_the_name_of_a_function_of_the_kernel_s() -> None:
    symbols = Symbols(MODULES)
    assert symbols.address("vfs_read") == 0xC1000060
    assert [symbols.sharing(name) for name in ("vfs_read", "table", "alone")] == [["mine", "other"], [], ["third"]]


def test_a_name_that_two_modules_share_is_no_function() -> None:
    with pytest.raises(EvidenceError, match="has 2 functions helper in modules mine and other: which one is meant"):
        Symbols(MODULES, frozenset({"mine"})).address("helper")
    with pytest.raises(EvidenceError, match="no function helper"):
        Symbols(MODULES, frozenset({"third"})).address("helper")


def test_an_address_has_the_symbol_before_it_a_modules_too() -> None:
    assert FUNCTIONS.at(0xC1000015) == "twice+0x5"
    assert FUNCTIONS.at(0xC1000040) == "table"
    assert FUNCTIONS.at(0xD0846092) == "only_in_a_module+0x2"
    assert FUNCTIONS.at(0x1000) == "0x1000"


def test_guests_share_what_was_parsed_only_where_their_lists_are_equal() -> None:
    texts = (LISTING, bytes(bytearray(LISTING)), LISTING.replace(b"c1900000", b"c1900010"))
    first, same, other = (Symbols.of(guest_with({KALLSYMS: text})) for text in texts)
    assert same is first
    assert other is not first
    assert (first.address("kpcache_get"), other.address("kpcache_get")) == (0xC1900000, 0xC1900010)
