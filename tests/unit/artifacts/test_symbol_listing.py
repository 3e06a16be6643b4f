# SPDX-License-Identifier: GPL-2.0-only
"""Does a search in the text of a list of symbols find what an index of all its lines has?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts.symbol_listing import ListedSymbol, SymbolListing

TEXT = b"""\
c1000000 T _text
c1000040 t twice
c1000040 T __ia32_sys_getpid
c1000080 t twice
c1000080 t twice_more
c2000000 d twice
d0846050 t twice\t[mine]
d0846090 r table\t[mine]
"""
NAMES = ["twice", "twice_more", "_text", "text", "twic", "table", "", "c1000040", "t", "mine", "\N{SNOWMAN}"]


def indexed(text: bytes) -> SymbolListing:
    """The list after so many searches that it has an index."""
    listing = SymbolListing(text)
    for number in range(1000):
        listing.named(f"no_such_function_{number}")
    return listing


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_found_in_the_text_as_in_an_index(name: str) -> None:
    assert list(SymbolListing(TEXT).named(name)) == list(indexed(TEXT).named(name))


def test_all_symbols_of_a_name_are_found_in_order_of_address() -> None:
    assert SymbolListing(TEXT).named("twice") == [
        ListedSymbol(0xC1000040, "twice", "t", ""),
        ListedSymbol(0xC1000080, "twice", "t", ""),
        ListedSymbol(0xC2000000, "twice", "d", ""),
        ListedSymbol(0xD0846050, "twice", "t", "mine"),
    ]


def test_the_symbols_at_an_address_are_those_of_its_lines() -> None:
    listing = SymbolListing(TEXT)
    assert [symbol.name for symbol in listing.at(0xC1000040)] == ["__ia32_sys_getpid", "twice"]
    assert listing.at(0xC1000041) == []
    wide = SymbolListing(b"ffffffff81000000 T _text\n")
    assert [symbol.name for symbol in wide.at(0xFFFFFFFF81000000)] == ["_text"]
    assert wide.at(0x81000000) == []


def test_the_address_that_follows_one_is_the_next_that_is_listed() -> None:
    listing = SymbolListing(TEXT)
    assert [listing.following(address) for address in (0, 0xC1000040, 0xC1000041)] == [
        0xC1000000,
        0xC1000080,
        0xC1000080,
    ]
    assert listing.following(0xD0846090) is None


def test_the_function_before_an_address_is_the_last_one_that_begins_there() -> None:
    listing = SymbolListing(TEXT)
    found = [listing.function_before(address) for address in (0xC1000000, 0xC100007F, 0xC2000000, 0xD0846095)]
    assert found == [0xC1000000, 0xC1000040, 0xC1000080, 0xD0846050]
    assert listing.function_before(0xC0FFFFFF) is None
    assert SymbolListing(b"").function_before(1) is SymbolListing(b"").following(1) is None


def test_addresses_of_any_length_are_compared_as_numbers() -> None:
    listing = SymbolListing(b"c1000000 T a\nffffffff81000000 T b\n0000000000000010 D c\n")
    assert [listing.following(address) for address in (0, 0x10, 0xC1000000)] == [0x10, 0xC1000000, 0xFFFFFFFF81000000]
    assert listing.function_before(0xFFFFFFFF80000000) == 0xC1000000


def test_the_symbols_of_modules_are_behind_those_of_the_kernel() -> None:
    assert [symbol.name for symbol in SymbolListing(TEXT).of_modules()] == ["twice", "table"]
    assert SymbolListing(TEXT.partition(b"d0846050")[0]).of_modules() == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0, 0xC1000000, 0xC1000010, 0xFFFFFFFF81000000]),
            st.sampled_from("tTdW"),
            st.sampled_from(["a", "ab", "b a", "a.b", "\x1c", "\xff"]),
            st.sampled_from(["", "\t[mine]", " ", "\t"]),
        ),
        max_size=12,
    ),
    st.sampled_from(["a", "ab", "b", "a.b", "\x1c"]),
)
def test_whatever_the_text_a_search_is_as_good_as_an_index(lines: list[tuple[int, str, str, str]], name: str) -> None:
    text = "".join(f"{address:08x} {kind} {word}{rest}\n" for address, kind, word, rest in lines).encode("latin-1")
    assert list(SymbolListing(text).named(name)) == list(indexed(text).named(name))
    for address in (0, 0xC1000010, 0xFFFFFFFF81000000):
        assert SymbolListing(text).at(address) == indexed(text).at(address)
