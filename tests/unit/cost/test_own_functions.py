# SPDX-License-Identifier: GPL-2.0-only
"""Is the cost of a module's own functions what is executed in them and below, for each time that calls enter them?"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from record_builders import cell, evidence, failed, run

from orchestrator.cost.cost_forms import cost_sheet
from orchestrator.cost.costs import Cost, problem, with_own_functions
from orchestrator.cost.own_functions import OwnFunction, own_functions
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.profile.stored.cell_profile import CellProfile, FoldedStack, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_files import FOLDER, file_name, write_profile
from orchestrator.results.contract import ProfileEvidence
from orchestrator.results.runs import Run

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
def test_unproved_profile_has_no_own_functions(stacks: tuple[FoldedStack, ...], proved: str) -> None:
    assert own_functions(profile(stacks), proved) == []


def beside_failed_baseline(folder: Path, reason: str) -> list[Cost]:
    """The costs of a module without a probe, whose baseline has failed for this reason."""
    samples = {"samples": [137.5, 137.5], "value": 137.5, "overhead": None, "interval": None}
    counter = cell("kprobe", id="a/b", probe="counter", evidence=evidence("kprobe"), **samples)
    counter = counter.model_copy(update={"parameters": {**counter.parameters, "entered": PROVED}})
    digest = write_profile(profile(STACKS), folder / FOLDER / file_name(counter.id))
    stored = ProfileEvidence(sha256=digest, calls=10, instructions=1375, int3=20)
    counter = counter.model_copy(update={"profile": stored})
    subject = Subject("counter.c", "counter.c", AttachPlace("counter_read"), "", "counter")
    measured = run(failed("none", reason), counter)
    return [*with_own_functions([Cost(subject, counter)], Run(measured, folder), is_judged=False)]


@pytest.mark.parametrize(
    "reason",
    [
        "/tmp/workload ended with status 1",
        "/tmp/workload ended with status 1\n    cannot open /dev/counter",
        "/tmp/workload was ended by signal 11",
        "expected 0 of each call; the timed ones returned ENODEV x 100",
    ],
)
def test_calls_that_fail_without_the_module_leave_its_functions(tmp_path: Path, reason: str) -> None:
    costs = beside_failed_baseline(tmp_path, reason)
    assert [cost.hit for cost in costs] == [91, 3]
    assert problem(costs) == ""


@pytest.mark.parametrize(
    "reason",
    [
        "`/tmp/workload -n 500` exceeded its time limit of 60 s in the guest",
        "the guest panicked: Fatal exception",
        "workload: no batch without an interrupt, a page fault or another task in 200 attempts",
        "/tmp/workload was ended by signal 9",
    ],
)
def test_a_baseline_that_failed_otherwise_is_not_said_to_be_of_calls_that_fail(tmp_path: Path, reason: str) -> None:
    costs = beside_failed_baseline(tmp_path, reason)
    assert [cost.hit for cost in costs] == [None]
    assert costs[0].reason == f"the calls without it were not measured: {reason}"
    assert problem(costs) == "1 of 1 cost could not be proved."
    assert not any("calls fail" in sentence for sentence in cost_sheet("cost", costs).sentences)
