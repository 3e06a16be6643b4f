# SPDX-License-Identifier: GPL-2.0-only
"""Are all bytes found in which two texts differ, and no others?"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.guest.guest import Guest
from orchestrator.probes.kernel_text import differing
from orchestrator.probes.static_branches import Switched, keys_of, switched_at, tracepoint_of
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import Span

SIZE = 3 * 4096 + 7


@given(st.sets(st.integers(0, SIZE - 1)), st.integers(1, 255))
def test_runs_are_the_bytes_that_differ(places: set[int], change: int) -> None:
    before = bytes(index % 251 for index in range(SIZE))
    after = bytearray(before)
    for place in places:
        after[place] ^= change
    pairs = list(differing(before, bytes(after)))
    assert [at for first, end in pairs for at in range(first, end)] == sorted(places)
    assert all(first < end for first, end in pairs)


# Which changes of the kernel's text are taken for a switched static branch?

NOP, JUMP = bytes.fromhex("3e8d742600"), bytes.fromhex("e910000000")


PLACE, TARGET = 0xC1000100, 0xC1000115


class Memory:
    """A guest that is read from only; its memory by the addresses of its parts."""

    def __init__(self, parts: Mapping[int, bytes]) -> None:
        self._parts = parts

    def read_memory(self, address: int, size: int) -> bytes:
        for start, content in self._parts.items():
            if start <= address < start + len(content):
                return content[address - start : address - start + size]
        raise AssertionError(f"{address:#x}")


def guest(**parts: bytes) -> Guest:
    return cast("Guest", Memory({int(address.removeprefix("at_"), 16): content for address, content in parts.items()}))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (NOP, JUMP, Switched(PLACE, TARGET, 5)),
        (JUMP, NOP, Switched(PLACE, TARGET, 5)),
        (bytes.fromhex("0f1f440000"), JUMP, Switched(PLACE, TARGET, 5)),
        (bytes.fromhex("6666666690"), JUMP, Switched(PLACE, TARGET, 5)),
        (bytes.fromhex("eb06909090"), bytes.fromhex("6690909090"), Switched(PLACE, PLACE + 8, 2)),
        (bytes.fromhex("89f6909090"), bytes.fromhex("ebfe909090"), Switched(PLACE, PLACE, 2)),
        (NOP, bytes.fromhex("e810000000"), None),
        (NOP, bytes.fromhex("cc8d742600"), None),
        (NOP, bytes.fromhex("eb06742600"), None),
        (JUMP, bytes.fromhex("e911000000"), None),
        (NOP, b"\xe9\x10", None),
    ],
)
def test_only_a_nop_and_a_jump_of_its_size_are_a_branch(before: bytes, after: bytes, expected: Switched | None) -> None:
    assert switched_at(PLACE, before, after) == expected


def entry(at: int, place: int, target: int, key: int, word: str) -> bytes:
    return struct.pack(f"<ii{word}", place - at, target - (at + 4), key - (at + 8))


@pytest.mark.parametrize(("word", "offset"), [("i", 0), ("q", 0xFFFFFFFF_00000000)])
def test_a_branch_is_one_that_the_kernels_table_has(word: str, offset: int) -> None:
    table, place, target, key = (offset + one for one in (0xC1800000, PLACE, TARGET, 0xC1900010))
    other = struct.pack("<ii", place - table, 7)  # another table's, such as the exceptions'
    memory = other + entry(table + 8, place, target, key | 1, word)
    branch, elsewhere = Switched(place, target, 5), Switched(place, target + 1, 5)
    parts = {f"at_{table:x}": memory}
    data = [Span("kernel", table, table + len(memory))]
    assert keys_of(guest(**parts), data, [branch]) == {branch: key}
    assert keys_of(guest(**parts), data, [elsewhere]) == {}
    # An entry that is cut off is none.
    assert keys_of(guest(**parts), [Span("kernel", table, table + len(memory) - 4)], [branch]) == {}


def test_a_tracepoints_key_is_known_by_its_functions() -> None:
    symbols = Symbols(b"c1000100 t __SCT__tp_func_sys_enter\nc1000200 t __traceiter_sys_enter\nc1000300 t other\n")
    words = [0, 0, 0xC1990000, 0xC1000100, 0xC1000200, 0, 0, 0]
    tracepoint, key = struct.pack("<8I", *words), struct.pack("<8I", 1, 0, 0xC1000300, *[0xC1000201] * 5)
    assert tracepoint_of(guest(at_c1900000=tracepoint), symbols, 0xC1900000) == "sys_enter"
    assert tracepoint_of(guest(at_c1900000=key), symbols, 0xC1900000) is None
