# SPDX-License-Identifier: GPL-2.0-only
"""Are a function's instructions shown with their counts?"""

from __future__ import annotations

import pytest

from orchestrator.errors import UsageError
from orchestrator.profile.difference import annotated
from orchestrator.results.stored_profile import CellProfile, Instruction, SymbolProfile

PROFILE = CellProfile(
    cell="a/b",
    arch="i386",
    calls=10,
    has_details=False,
    symbols=(
        SymbolProfile(
            name="kprobe_func",
            place="module",
            module="lab_kprobe",
            address=0x40,
            instructions=(Instruction(0, "55", 10), Instruction(1, "89e5", 5), Instruction(0x12, "ff", 20)),
        ),
        SymbolProfile(
            name="probed",
            place="kernel",
            address=0xC1000000,
            instructions=(Instruction(0, "e8fb0f0000", 10), Instruction(5, "7403", 10)),
        ),
    ),
    names={"": {0xC1001000: "get_kprobe", 0xC100000A: "probed+0xa"}},
)


@pytest.mark.parametrize("name", ["kprobe_func", "kprobe_func [lab_kprobe]"])
def test_each_instruction_has_its_count_per_call(name: str) -> None:
    assert annotated([PROFILE], name).splitlines() == [
        "a/b",
        "kprobe_func [lab_kprobe+0x40]",
        "  1  +0x0   55    push ebp",
        "0.5  +0x1   89e5  mov ebp, esp",
        "  2  +0x12  ff    .byte ff",
    ]


def test_what_instructions_lead_to_has_its_name() -> None:
    assert annotated([PROFILE], "probed").splitlines()[2:] == [
        "1  +0x0  e8fb0f0000  call get_kprobe",
        "1  +0x5  7403        je +0xa",
    ]


def test_a_function_that_was_not_executed_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="do not execute 'kprobe_fun'") as error:
        annotated([PROFILE], "kprobe_fun")
    assert error.value.hint == "did you mean kprobe_func?"


def test_cells_that_do_not_execute_it_are_passed_over() -> None:
    without = PROFILE.model_copy(update={"cell": "none", "symbols": PROFILE.symbols[1:]})
    assert annotated([without, PROFILE], "kprobe_func") == annotated([PROFILE], "kprobe_func")
    with pytest.raises(UsageError, match="calls of none of the 2 cells execute 'vfs_read'"):
        annotated([without, PROFILE], "vfs_read")
