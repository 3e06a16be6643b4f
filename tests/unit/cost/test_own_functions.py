# SPDX-License-Identifier: GPL-2.0-only
"""Is the cost of a module's own functions what is executed in them and below, for each time that calls enter them?"""

from __future__ import annotations

from fractions import Fraction

import pytest

from orchestrator.cost.own_functions import OwnFunction, own_functions
from orchestrator.results.stored_profile import CellProfile, FoldedStack, InstructionCount, SymbolProfile

CALL = "workload;entry;do_syscall_64"
STACKS = (
    FoldedStack("workload", 100),
    FoldedStack(f"{CALL}", 200, 10),
    FoldedStack(f"{CALL};counter_ioctl [counter]", 310, 10),
    FoldedStack(f"{CALL};counter_ioctl [counter];_copy_from_user", 210, 10),
    FoldedStack(f"{CALL};counter_ioctl [counter];ring_push [counter]", 140, 10),
    FoldedStack(f"{CALL};counter_ioctl [counter];ring_push [counter];_raw_spin_lock", 250, 10),
    FoldedStack(f"{CALL};counter_read [counter]", 90, 30),
    FoldedStack(f"{CALL};ext4_read [ext4]", 70, 10),
    FoldedStack(f"{CALL};counter_unproved [counter]", 5),
)
PROVED = "counter_ioctl [counter], ring_push [counter]"


def profile(stacks: tuple[FoldedStack, ...]) -> CellProfile:
    executed = sum(stack.executed for stack in stacks)
    instructions = (InstructionCount(0, "90", executed),) if executed else ()
    symbol = SymbolProfile(name="f", place="kernel", address=0, instructions=instructions)
    return CellProfile(
        cell="a/b", arch="x86_64", calls=10, has_details=False, symbols=(symbol,) if executed else (), stacks=stacks
    )


def test_a_function_has_the_instructions_below_it() -> None:
    assert own_functions(profile(STACKS), PROVED) == [
        OwnFunction("counter_ioctl", Fraction(1), Fraction(91)),
        OwnFunction("counter_read", Fraction(3), Fraction(3)),
    ]


@pytest.mark.parametrize(("stacks", "proved"), [((), PROVED), (STACKS, ""), (STACKS, "f [other]"), (STACKS, "f")])
def test_what_is_not_proved_has_no_function(stacks: tuple[FoldedStack, ...], proved: str) -> None:
    assert own_functions(profile(stacks), proved) == []
