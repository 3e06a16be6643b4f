# SPDX-License-Identifier: GPL-2.0-only
"""Is the cost of a module's own functions what is executed in them and below, for each time that calls enter them?"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from record_builders import cell, evidence, failed, run

from orchestrator.cost.cost_forms import cost_sheet
from orchestrator.cost.costs import Cost, FunctionCosts, problem
from orchestrator.cost.own_functions import OwnFunction, own_functions
from orchestrator.cost.reference import Reference
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.errors import UsageError
from orchestrator.profile.stored.cell_profile import CellProfile, FoldedStack, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_files import FOLDER, file_name, write_profile
from orchestrator.results.budgets import Budgets
from orchestrator.results.contract import CellRecord, ProfileEvidence
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
    """Those by which calls enter the module come first, then those that these call."""
    assert own_functions(profile(STACKS), PROVED) == [
        OwnFunction("counter_ioctl", Fraction(1), Fraction(91), Fraction(31), 10),
        OwnFunction("counter_read", Fraction(3), Fraction(3), Fraction(3), 30),
        OwnFunction("ring_push", Fraction(1), Fraction(39), Fraction(14), 10),
    ]


def test_a_function_that_calls_itself_is_entered_once() -> None:
    walk = f"{CALL};walk [counter]"
    stacks = (FoldedStack(walk, 60, 10), FoldedStack(f"{walk};walk [counter]", 40, 10))
    assert own_functions(profile(stacks), PROVED) == [OwnFunction("walk", Fraction(1), Fraction(10), Fraction(10), 10)]


@pytest.mark.parametrize(("stacks", "proved"), [((), PROVED), (STACKS, ""), (STACKS, "f [other]"), (STACKS, "f")])
def test_unproved_profile_has_no_own_functions(stacks: tuple[FoldedStack, ...], proved: str) -> None:
    assert own_functions(profile(stacks), proved) == []


def counted(folder: Path, stacks: tuple[FoldedStack, ...], baseline: CellRecord) -> Run:
    """A run of a module without a probe, whose functions have these stacks, beside a baseline."""
    folder.mkdir(exist_ok=True)
    samples = {"samples": [137.5, 137.5], "value": 137.5, "overhead": None, "interval": None}
    counter = cell("kprobe", id="a/b", probe="counter", evidence=evidence("kprobe"), **samples)
    counter = counter.model_copy(update={"parameters": {**counter.parameters, "entered": PROVED}})
    digest = write_profile(profile(stacks), folder / FOLDER / file_name(counter.id))
    stored = ProfileEvidence(sha256=digest, calls=10, instructions=1375, int3=20)
    return Run(run(baseline, counter.model_copy(update={"profile": stored})), folder)


SUBJECT = Subject("./counter.c", "counter.c", AttachPlace("counter_read"), "", "counter")
NO_DEVICE = failed("none", "/tmp/workload ended with status 1")


def beside_failed_baseline(folder: Path, reason: str) -> list[Cost]:
    """The costs of a module without a probe, whose baseline has failed for this reason."""
    measured = counted(folder, STACKS, failed("none", reason))
    return [*FunctionCosts(measured).among([Cost(SUBJECT, measured.record.cells[-1])])]


def with_budget(folder: Path, budget: str | None, before: Run | None = None, function: str | None = None) -> list[Cost]:
    """The costs of the functions beside a budget of a hit, and those of a run before."""
    measured = counted(folder, STACKS, NO_DEVICE)
    budgets = Budgets() if budget is None else Budgets.of({"*": {"overhead": budget}})
    reference = None if before is None else Reference("main", before, {"a/b": before.record.cells[-1]})
    costs = FunctionCosts(measured, budgets, reference, function)
    return [*costs.among([Cost(SUBJECT, measured.record.cells[-1])])]


def test_each_function_has_the_budget_of_a_hit(tmp_path: Path) -> None:
    costs = with_budget(tmp_path, "<=50")
    assert [(cost.mechanism, cost.exceeded) for cost in costs] == [
        ("in counter_ioctl", ["counter_ioctl takes 91 instructions, allowed <=50"]),
        ("in counter_read", ()),
        ("in ring_push", ()),
    ]
    assert problem(costs) == "1 of 3 costs exceeds what is allowed."
    assert problem(with_budget(tmp_path, "<=91")) == ""


def test_each_function_is_compared_with_itself(tmp_path: Path) -> None:
    cheaper = tuple(stack._replace(executed=stack.executed - 100 * ("push" in stack.names)) for stack in STACKS)
    without = tuple(stack for stack in cheaper if "counter_read" not in stack.names)
    before = counted(tmp_path / "before", without, NO_DEVICE)
    costs = with_budget(tmp_path, "+0", before)
    figures = [(cost.mechanism, cost.difference, bool(cost.exceeded), cost.new) for cost in costs]
    assert figures == [
        ("in counter_ioctl", 20, True, ""),
        ("in counter_read", None, False, "at main no call enters counter_read()"),
        ("in ring_push", 20, True, ""),
    ]
    assert costs[0].exceeded == ["counter_ioctl takes 91 instructions, 71 before, allowed +0"]
    assert problem(with_budget(tmp_path, "+20", before)) == ""
    uncounted = counted(tmp_path / "uncounted", (), NO_DEVICE)
    assert {cost.unknown for cost in with_budget(tmp_path, "+20", uncounted)} == {
        "at main its functions were not counted"
    }


def test_a_function_of_the_users_is_the_only_one(tmp_path: Path) -> None:
    (push,) = with_budget(tmp_path, "<=39", function="ring_push")
    assert (push.hit, push.exceeded, push.hits) == (39, (), 10)
    with pytest.raises(UsageError, match=r"no call enters ring_pusch of counter\.c") as refused:
        with_budget(tmp_path, None, function="ring_pusch")
    assert refused.value.hint == "did you mean ring_push?"
    (sentence,) = (text for text in cost_sheet("cost", [push]).sentences if "calls fail" in text)
    assert sentence.endswith(
        "a hit is what a function executes with all it calls, alone without those; a call takes 137.5."
    )


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
    assert [cost.hit for cost in costs] == [91, 3, 39]
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
