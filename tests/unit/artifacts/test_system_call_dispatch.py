# SPDX-License-Identifier: GPL-2.0-only
"""Is a number's function found, whatever the compiler makes of the dispatch?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from built_code import build_tree

from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree
from orchestrator.artifacts.machine_code import UnknownDispatchError, dispatched

SOURCES = Path(__file__).parent / "dispatch"
CALLS = {0, 1, 2, 3, 5, 6, 7, 9, 20, 21, 22, 40, 41, 43}


def built(folder: Path, source: str, word: int, *options: str) -> KernelCode:
    code = code_of_tree(build_tree(folder, SOURCES / source, word, *options))
    assert code is not None
    assert code.word == word
    return code


@pytest.mark.parametrize("word", [4, 8])
@pytest.mark.parametrize(
    "options",
    [
        [],  # a table of jumps, tail calls
        ["-fno-jump-tables"],
        ["-fno-optimize-sibling-calls", "-fno-omit-frame-pointer"],
        ["-fno-jump-tables", "-fno-optimize-sibling-calls", "-fcf-protection=branch"],
        ["-O1"],
        ["-Os"],
    ],
    ids=" ".join,
)
def test_a_switch(tmp_path: Path, word: int, options: list[str]) -> None:
    code = built(tmp_path, "switch.c", word, *options)
    for number in (*range(60), 1000, 0xFFFFFFFF):
        assert dispatched(code, "i386", number) == f"__ia32_sys_call{number if number in CALLS else 99}"


def test_tables(tmp_path: Path) -> None:
    code = built(tmp_path, "table.c", 8)
    assert [dispatched(code, "x86_64", number) for number in (0, 1)] == ["__ia32_sys_zero", "__ia32_sys_one"]
    assert [dispatched(code, "i386", number) for number in (0, 1)] == ["__ia32_sys_one", "__ia32_sys_zero"]
    with pytest.raises(UnknownDispatchError, match=r"^ia32_sys_call_table has no entry 2$"):
        dispatched(code, "i386", 2)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    code = built(tmp_path, "table.c", 4)
    with pytest.raises(UnknownDispatchError, match="neither a function x64_sys_call nor a table sys_call_table"):
        dispatched(dataclasses.replace(code, word=8, symbols=()), "x86_64", 0)
    switch = built(tmp_path, "switch.c", 4)
    start = switch.function("ia32_sys_call")
    assert start is not None
    # A compiler that computes the target in registers of its own, from what the image does not say: jmp *%ecx.
    place = switch.image.index(switch.read(start, 16))
    changed = switch.image[:place] + b"\xff\xe1" + switch.image[place + 2 :]
    with pytest.raises(UnknownDispatchError, match=r"^what jmp at 0x[0-9a-f]+ depends on is not known$"):
        dispatched(dataclasses.replace(switch, image=changed), "i386", 0)


def test_flags_of_an_unknown_instruction_are_not_those_of_the_compare_before(tmp_path: Path) -> None:
    switch = built(tmp_path, "switch.c", 4)
    start = switch.function("ia32_sys_call")
    assert start is not None
    place = switch.image.index(switch.read(start, 16))
    # cmp $1,%edx; and $4,%edx; je .+5: whether it jumps follows from the and.
    code = bytes.fromhex("83fa0183e2047405")
    changed = dataclasses.replace(switch, image=switch.image[:place] + code + switch.image[place + len(code) :])
    with pytest.raises(UnknownDispatchError, match=r"^what je at 0x[0-9a-f]+ depends on is not known$"):
        dispatched(changed, "i386", 1)
