# SPDX-License-Identifier: GPL-2.0-only
"""The time left of a run: what is not known is not guessed. The clock is the test's own."""

from __future__ import annotations

import pytest
from loaded_tables import calls_experiment

from orchestrator.experiment.plan import plan
from orchestrator.results.run_files import Durations
from orchestrator.run.runner import TimeLeft, rounded

PLAN = plan(calls_experiment(probes=["none", "kprobe", "djprobe"]))
NONE, KPROBE, DJPROBE = (cell.id for cell in PLAN.cells)
KNOWN = Durations({NONE: 10.0, KPROBE: 4.0, DJPROBE: 6.0}, {})


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_it_is_what_the_unfinished_cells_took_before(clock: Clock) -> None:
    left = TimeLeft(PLAN, {NONE, KPROBE, DJPROBE}, KNOWN, clock=clock)
    assert left.seconds() == 20.0
    clock.now += 3
    assert left.seconds() == 17.0
    left.ended(NONE)
    assert left.seconds() == 10.0
    assert left.text() == "about 10 s left"


def test_a_resumed_run_has_its_other_cells_left_only(clock: Clock) -> None:
    assert TimeLeft(PLAN, {DJPROBE}, KNOWN, clock=clock).seconds() == 6.0


def test_nothing_is_said_of_what_is_not_known(clock: Clock) -> None:
    left = TimeLeft(PLAN, {NONE, KPROBE}, Durations({NONE: 10.0}, {}), clock=clock)
    assert left.seconds() is None
    assert left.text() == ""
    left.ended(KPROBE)
    assert left.seconds() == 10.0, "what is left is known"


def test_a_benchmark_stands_in_for_a_cell_of_it(clock: Clock) -> None:
    benchmark = PLAN.cells[0].benchmark
    assert TimeLeft(PLAN, {NONE, KPROBE}, Durations({NONE: 10.0}, {benchmark: 5.0}), clock=clock).seconds() == 15.0


def test_nothing_is_said_once_it_takes_longer_than_before(clock: Clock) -> None:
    left = TimeLeft(PLAN, {DJPROBE}, KNOWN, clock=clock)
    clock.now += 7
    assert left.seconds() is None
    left.ended(DJPROBE)
    assert left.seconds() is None


def test_guests_side_by_side_divide_boots_and_not_cells(clock: Clock) -> None:
    two = plan(calls_experiment(probes=["none", "kprobe"], machines=[{"cpu": "pentium4"}, {"cpu": "athlon"}]))
    ids = {cell.id for cell in two.cells}
    known = Durations(dict.fromkeys(ids, 5.0), {})
    assert len(two.boots) == 2
    assert TimeLeft(two, ids, known, jobs=lambda: 1, clock=clock).seconds() == 20.0
    assert TimeLeft(two, ids, known, jobs=lambda: 2, clock=clock).seconds() == 10.0
    assert TimeLeft(two, ids, known, jobs=lambda: 8, clock=clock).seconds() == 10.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (119.0, "119 s"), (150.0, "2 min"), (3600.0, "60 min"), (9000.0, "2 h")]
)
def test_times_are_rounded(seconds: float, text: str) -> None:
    assert rounded(seconds) == text
