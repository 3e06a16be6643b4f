# SPDX-License-Identifier: GPL-2.0-only
"""Is each instruction in the classes that it belongs to?"""

from __future__ import annotations

import pytest

from orchestrator.profile.code.instruction_classes import per_call
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile


def profile(*instructions: InstructionCount, has_details: bool = True, arch: str = "i386") -> CellProfile:
    symbol = SymbolProfile(name="f", place="kernel", address=0, instructions=instructions)
    return CellProfile.model_validate(
        {"cell": "a/b", "arch": arch, "calls": 2, "has_details": has_details, "symbols": [symbol.model_dump()]}
    )


@pytest.mark.parametrize(
    ("code", "classes"),
    [
        ("cc", {"traps"}),
        ("cd80", {"traps"}),
        ("cf", {"iret", "serialising"}),
        ("0f05", {"system calls"}),
        ("0f34", {"system calls"}),  # sysenter
        ("0f07", {"sysret"}),
        ("0f35", {"sysret"}),  # sysexit
        ("e800000000", {"calls"}),
        ("ffd0", {"calls"}),
        ("c3", {"returns"}),
        ("9d", {"popf"}),
        ("9c", {"pushf"}),
        ("0f31", {"rdtsc"}),
        ("0fa2", {"serialising"}),
        ("0f22d8", {"serialising"}),  # mov cr3, eax
        ("8ed8", {"segment loads"}),  # mov ds, eax
        ("1f", {"segment loads"}),  # pop ds
        ("8cd8", set()),  # mov eax, ds
        ("f00fb111", {"locked"}),  # lock cmpxchg
        ("3ef0ff01", {"locked"}),  # with another prefix in front
        ("8701", {"locked"}),  # xchg with memory locks by itself
        ("87c1", set()),  # and with a register does not
        ("b8f0000000", set()),  # a number that looks like the prefix
        ("f30f1efb", set()),  # endbr32
        ("f0", set()),  # no instruction
    ],
)
def test_the_classes_of_an_instruction(code: str, classes: set[str]) -> None:
    found = per_call(profile(InstructionCount(0, code, 4), has_details=False))
    assert {name for name, value in found.items() if value} == classes
    assert all(found[name] == 2 for name in classes)


def test_loads_stores_and_branches_are_there_where_they_were_counted() -> None:
    branch, other_count = (
        InstructionCount(0, "7405", 4, taken=3),
        InstructionCount(2, "ff31", 4, loads=4, stores=4, taken=1),
    )
    found = per_call(profile(branch, other_count))
    # What goes on elsewhere and is no branch was interrupted, or repeats itself.
    assert [float(found[name]) for name in ("loads", "stores", "taken branches")] == [2, 2, 1.5]
    assert "loads" not in per_call(profile(branch, other_count, has_details=False))


def test_64_bit_code_is_read_as_such() -> None:
    assert per_call(profile(InstructionCount(0, "48cf", 2), arch="x86_64"))["iret"] == 1
    assert per_call(profile(InstructionCount(0, "480f07", 2), arch="x86_64"))["sysret"] == 1
