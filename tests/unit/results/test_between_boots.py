# SPDX-License-Identifier: GPL-2.0-only
"""Do the A/A boots decide where a whole system's baseline has changed? It has no interval of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from record_builders import whole_system

from orchestrator.results.contract import CellRecord
from orchestrator.results.history import Metric, history, recent_histories
from orchestrator.results.history_steps import steps_of
from orchestrator.results.store import Store

KERNEL = "lab-i386-up"
BASELINE = Metric("whole", f"{KERNEL}/none")


def boots(real: float, apart: float, **changes: Any) -> list[CellRecord]:
    """A baseline, and one more boot of it, which takes ``apart`` more."""
    baseline = whole_system(KERNEL, real=real, base=real, interval=[0.0, 0.0], **changes)
    return [baseline, whole_system(KERNEL, real=real + apart, base=real, again=1, interval=None, **changes)]


def probed(real: float, base: float, half: float, **changes: Any) -> CellRecord:
    """A cell that is compared with a baseline, and known to ``half``."""
    low_high = {"interval": [real - base - half, real - base + half]}
    return whole_system(KERNEL, "kprobe", real=real, base=base, recorded=1000, **{**low_high, **changes})


def changed(lab: Path, runs: Sequence[Sequence[CellRecord]]) -> list[tuple[float, float]]:
    """The steps of the baseline, read alone and among all metrics."""
    with Store.open(lab) as store:
        for records in runs:
            entry = store.begin_run("whole", [one.id for one in records], digest="1", provenance={})
            for one in records:
                store.record(entry.id, one)
        alone = history(store, BASELINE)
        assert alone is not None
        (among,) = (one for one in recent_histories(store, 10) if one.metric == BASELINE)
    assert steps_of(among) == steps_of(alone)
    return [(step.old, step.new) for step in steps_of(alone).found]


def test_a_change_within_what_a_further_boot_differs_by_is_none(tmp_path: Path) -> None:
    assert changed(tmp_path, [boots(1e9 + more, 500.0) for more in (0, 400, -200, 100)]) == []


def test_a_larger_change_is_a_step(tmp_path: Path) -> None:
    found = changed(tmp_path, [boots(1e9 + more, -500.0) for more in (0, 0, 700, 700)])
    assert found == [(1e9, 1e9 + 700)]


def test_the_widest_interval_of_what_is_compared_with_it_counts(tmp_path: Path) -> None:
    runs = [[*boots(1e9 + more, 500.0), probed(2e9, 1e9 + more, 800.0)] for more in (0, 0, 700, 900)]
    assert changed(tmp_path, runs) == [(1e9, 1e9 + 900)]


def test_another_table_or_benchmark_says_nothing(tmp_path: Path) -> None:
    others = [probed(2e9, 1e9, 9000.0, id="t/kprobe", table="t"), probed(2e9, 1e9, 9000.0, id="p", benchmark="pings")]
    assert changed(tmp_path, [[*boots(1e9 + more, 500.0), *others] for more in (0, 700)]) == [(1e9, 1e9 + 700)]


def test_a_run_without_further_boots_makes_no_step(tmp_path: Path) -> None:
    runs = [boots(1e9, 500.0), boots(1e9, 500.0), boots(1e9 + 5000, 0.0)[:1], boots(1e9, 500.0)]
    assert changed(tmp_path, runs) == []


def test_an_interval_of_its_own_comes_first(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        record = probed(2e9, 1e9, 100.0)
        records = [*boots(1e9, 500.0), record]
        entry = store.begin_run("whole", [one.id for one in records], digest="1", provenance={})
        for one in records:
            store.record(entry.id, one)
        found = history(store, Metric("whole", record.id))
    assert found is not None
    assert [point.resolution for point in found.points] == [100.0]
    assert replace(found.points[0], interval=None).resolution is None
