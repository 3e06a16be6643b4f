# SPDX-License-Identifier: GPL-2.0-only
"""Is a cell's course read from the store as it was written, and are its steps those that are real?"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from record_builders import cell, whole_system
from stored_histories import BASE, BEGUN, EXPERIMENT, KPROBE, NEEDS_RUPTURES, broken, counted, store_days, timed

from orchestrator.comparison import verdicts
from orchestrator.errors import LabError, UsageError
from orchestrator.results.contract import PER_RUN, CellRecord
from orchestrator.results.cost_history import (
    History,
    Metric,
    Quantity,
    history,
    metrics,
    metrics_named,
    recent_histories,
)
from orchestrator.results.differences import between_cells
from orchestrator.results.history_steps import RunProvenances, Steps, causes, steps_of
from orchestrator.results.store import FILE_NAME, Store

METRIC = Metric(EXPERIMENT, KPROBE)


def read(lab: Path, days: Sequence[CellRecord], quantity: Quantity = "value") -> History:
    store_days(lab, days)
    with Store.open(lab) as store:
        found = history(store, Metric(EXPERIMENT, days[-1].id), quantity)
    assert found is not None
    return found


def changes(steps: Steps) -> list[tuple[float, float, int]]:
    return [(step.old, step.new, step.missing) for step in steps.ordered]


def test_each_run_is_a_point_and_each_change_of_a_count_a_step(tmp_path: Path) -> None:
    found = read(tmp_path, [counted(1036), counted(1036), broken(), counted(1037), counted(1036)])
    assert [point.value for point in found.points] == [1036, 1036, None, 1037, 1036]
    assert [point.status for point in found.points] == ["ok", "ok", "failed", "ok", "ok"]
    assert found.points[0].started == BEGUN.isoformat()
    assert found.points[0].interval == (627, 627)
    assert found.points[2].reason == "the guest hangs"
    assert found.is_exact
    assert changes(steps_of(found)) == [(1036, 1037, 1), (1037, 1036, 0)]


SCATTER = (-10.0, 7.0, 2.0, -4.0, 10.0, -5.0)


def varying(mean: float, overhead: float | None = None, apart: float = 0.0) -> CellRecord:
    """Calls whose samples lie within 20 instructions, and their overhead within ``apart``."""
    overhead = mean - BASE if overhead is None else overhead
    interval = [overhead - apart / 2, overhead + apart / 2]
    return counted(mean, samples=[mean + by for by in SCATTER], overhead=overhead, interval=interval)


def test_a_change_of_calls_that_vary_exceeds_the_spread_of_both_runs_samples(tmp_path: Path) -> None:
    found = read(tmp_path, [varying(6100.0), varying(6119.0), varying(6140.0)])
    assert (found.is_exact, found.resolution(found.newest)) == (False, 10.0)
    steps = steps_of(found)
    assert changes(steps) == [(6109.5, 6140.0, 0)]
    assert steps.how.startswith("A change is a step if it exceeds half the spread of both runs' samples, and ")


def test_a_run_whose_calls_no_longer_vary_is_compared_with_those_that_did(tmp_path: Path) -> None:
    found = read(tmp_path, [varying(6100.0), varying(6119.0), counted(6112.0), counted(6121.0)])
    assert not found.is_exact
    assert changes(steps_of(found)) == []
    assert changes(steps_of(read(tmp_path / "later", [varying(6100.0), counted(6112.0)]))) == [(6100.0, 6112.0, 0)]


def test_the_overhead_of_calls_that_vary_has_steps_where_their_value_has_none(tmp_path: Path) -> None:
    days = [varying(6100.0, 127.0, apart=2), varying(6101.0, 128.0, apart=2), varying(6104.0, 130.0)]
    assert changes(steps_of(read(tmp_path / "value", days))) == []
    steps = steps_of(read(tmp_path / "overhead", days, "overhead"))
    assert changes(steps) == [(127.5, 130.0, 0)]
    assert steps.how == "A change is a step if it exceeds half of both runs' intervals."


def test_what_calls_that_vary_cost_in_a_runs_other_cells_is_no_step(tmp_path: Path) -> None:
    """Two guests differ by more than the samples of one of them: the run's cell without a probe shows that."""
    apart = [varying(6100.0, 5651.0), varying(6145.0)]  # less its probe: 449 in one run, and 409 without one
    found = read(tmp_path, apart)
    assert [found.resolution(point) for point, _ in found.numbers] == [50.0, 10.0]
    assert changes(steps_of(found)) == []


def test_a_cell_s_history_and_a_comparison_know_the_same_calls(tmp_path: Path) -> None:
    """Times of the same calls, and calls by another entry, say nothing of counted ones."""
    subject, alike = varying(6100.0, 5651.0), varying(6110.0, 5650.0).model_copy(update={"id": "alike"})
    times = timed(9000.0, id="times", samples=[9000.0])
    entered = varying(6110.0, 5000.0).model_copy(update={"id": "entered", "parameters": {"entry": "int80"}})
    run = {record.id: record for record in (subject, alike, times, entered)}
    with Store.open(tmp_path) as store:
        entry = store.begin_run(EXPERIMENT, list(run), digest="1", provenance={})
        for record in run.values():
            store.record(entry.id, record)
        stored = between_cells(store, EXPERIMENT, subject.id, "")
        assert stored == {entry.id: verdicts.between_cells(subject, run)} == {entry.id: 11.0}


def test_the_overhead_has_a_history_of_its_own(tmp_path: Path) -> None:
    days = [counted(1036), counted(1040, overhead=627.0, interval=[627.0, 627.0])]
    assert changes(steps_of(read(tmp_path, days, "overhead"))) == []


def test_runs_that_measured_something_else_are_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, [timed(900.0), counted(1036), counted(1036), broken()])
    assert ([point.value for point in found.points], found.other_units) == ([1036, 1036, None], 1)
    assert found.unit == "instructions"


def test_a_history_without_any_number_has_no_step(tmp_path: Path) -> None:
    assert changes(steps_of(read(tmp_path, [broken(), broken()]))) == []


@NEEDS_RUPTURES
def test_a_step_of_times_needs_runs_on_both_sides(tmp_path: Path) -> None:
    chance = random.Random(3)
    days = [timed(round(chance.gauss(1000 + 60 * (day >= 15), 8), 1)) for day in range(30)]
    (step,) = steps_of(read(tmp_path / "long", days)).ordered
    assert step.change == pytest.approx(60, abs=10)
    assert step.after.started[:10] == "2026-03-16"
    short = steps_of(read(tmp_path / "short", days[10:21]))
    assert (short.ordered, "11 runs with a number" in short.how) == ([], True)


def test_a_whole_system_s_change_exceeds_what_its_repetitions_resolve(tmp_path: Path) -> None:
    def work(real: float) -> CellRecord:
        record = whole_system("lab-i386-up", "kprobe", real=real, base=1e6, recorded=1000)
        low_high = {"overhead": real - 1e6, "interval": [real - 1e6 - 500, real - 1e6 + 500]}
        return CellRecord.model_validate({**record.model_dump(), **low_high})

    days = [work(2e6 + more) for more in (0, 300, -200, 700, 600, 100)]
    steps = steps_of(read(tmp_path, days))
    # From the median of the runs since the last step, 700 differs by 700, 600 by 100, and 100 by 550.
    assert changes(steps) == [(2e6, 2e6 + 650, 0), (2e6 + 650, 2e6 + 100, 0)]
    assert "A/A" in steps.how


def test_a_change_of_a_program_exceeds_half_its_interval(tmp_path: Path) -> None:
    def program(value: float) -> CellRecord:
        samples, overhead = [value - 20, value, value + 20], value - 409
        return counted(
            value, metric=PER_RUN, samples=samples, overhead=overhead, interval=[overhead - 40, overhead + 40]
        )

    steps = steps_of(read(tmp_path, [program(2000.0 + more) for more in (0, 30, 100)]))
    assert changes(steps) == [(2015.0, 2100.0, 0)]
    assert "half the interval of a program's runs" in steps.how


def test_what_changed_between_two_runs(tmp_path: Path) -> None:
    runs = store_days(tmp_path, [counted(1036), counted(1036), counted(1050)], {1: "6.1.176-1", 2: "6.1.178-1"})
    with Store.open(tmp_path) as store:
        found = history(store, METRIC)
        assert found is not None
        (step,) = steps_of(found).ordered
        assert [cause.sentence for cause in causes(RunProvenances(store), step, METRIC)] == [
            "kernel debian-686: 6.1 (6.1.176-1) -> 6.1 (6.1.178-1)"
        ]
        (tmp_path / "runs" / runs[2] / "provenance.json").write_text("{")
        (cause,) = causes(RunProvenances(store), step, METRIC)
        assert "damaged" in cause.sentence


def test_the_metrics_of_a_store_and_those_that_are_named(tmp_path: Path) -> None:
    store_days(tmp_path, [counted(1036), counted(1037)])
    with Store.open(tmp_path) as store:
        assert metrics(store) == [METRIC, Metric(EXPERIMENT, cell("none").id)]
        assert metrics(store, "other") == []
        assert metrics_named(store, "quickstart:kprobe") == [METRIC]
        assert metrics_named(store, f"quickstart:{KPROBE}") == [METRIC]
        assert len(metrics_named(store, "quickstart")) == len(metrics_named(store, "quickstart:pentium4")) == 2
        with pytest.raises(UsageError, match="did you mean 'kprobe'"):
            metrics_named(store, "quickstart:kprob")
        with pytest.raises(UsageError, match="did you mean 'quickstart:kprobe'"):
            metrics_named(store, "kprobe")
        with pytest.raises(UsageError, match="did you mean 'quickstart:kprobe'"):
            metrics_named(store, "quickstrat:kprobe")


def test_only_the_runs_that_are_asked_for(tmp_path: Path) -> None:
    runs = store_days(tmp_path, [counted(1036), counted(1037), counted(1038)])
    with Store.open(tmp_path) as store:
        late = history(store, METRIC, since="2026-03-02T12:00:00+00:00")
        assert late is not None
        assert [point.run for point in late.points] == runs[1:]
        assert history(store, METRIC, since="2026-04") is None
        recent = {one.metric: one for one in recent_histories(store, 2)}
        assert [point.run for point in recent[METRIC].points] == runs[1:]
        assert len(recent) == 2


@pytest.mark.parametrize(
    "record", ["'{}'", "json_set(record, '$.value', 'x')", "json_set(record, '$.interval', json('[2, 1]'))"]
)
def test_a_store_that_another_program_changed_is_said(record: str, tmp_path: Path) -> None:
    store_days(tmp_path, [counted(1036)])
    with sqlite3.connect(tmp_path / FILE_NAME) as connection:
        connection.execute(f"UPDATE cells SET record = {record}")
    with Store.open(tmp_path) as store, pytest.raises(LabError, match="contradict each other"):
        history(store, METRIC)
