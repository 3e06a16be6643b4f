# SPDX-License-Identifier: GPL-2.0-only
"""Do the A/A boots decide where a whole system's baseline has changed? It has no interval of its own."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from record_builders import whole_system
from stored_histories import EXPERIMENT, KPROBE, NEEDS_RUPTURES, counted, store_days

from orchestrator.errors import HostError
from orchestrator.results import step_fit
from orchestrator.results.contract import CellRecord
from orchestrator.results.cost_history import Metric, history, recent_histories
from orchestrator.results.history_steps import RunProvenances, causes, steps_of
from orchestrator.results.recorded_provenance import FILE_NAME
from orchestrator.results.step_fit import FEWEST_POINTS, noise_of, steps_of_times
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
            entry = store.begin_run("whole", [cell.id for cell in records], digest="1", provenance={})
            for record in records:
                store.record(entry.id, record)
        alone = history(store, BASELINE)
        assert alone is not None
        (among,) = (one for one in recent_histories(store, 10) if one.metric == BASELINE)
    assert steps_of(among) == steps_of(alone)
    return [(step.old, step.new) for step in steps_of(alone).ordered]


def test_a_change_within_what_a_further_boot_differs_by_is_none(tmp_path: Path) -> None:
    assert changed(tmp_path, [boots(1e9 + more, 500.0) for more in (0, 400, -200, 100)]) == []


def test_a_larger_change_is_a_step(tmp_path: Path) -> None:
    pairs = changed(tmp_path, [boots(1e9 + more, -500.0) for more in (0, 0, 700, 700)])
    assert pairs == [(1e9, 1e9 + 700)]


def test_the_widest_interval_of_what_is_compared_with_it_counts(tmp_path: Path) -> None:
    runs = [[*boots(1e9 + more, 500.0), probed(2e9, 1e9 + more, 800.0)] for more in (0, 0, 700, 900)]
    assert changed(tmp_path, runs) == [(1e9, 1e9 + 900)]


def test_another_table_or_benchmark_says_nothing(tmp_path: Path) -> None:
    other_cells = [
        probed(2e9, 1e9, 9000.0, id="t/kprobe", table="t"),
        probed(2e9, 1e9, 9000.0, id="p", benchmark="pings"),
    ]
    assert changed(tmp_path, [[*boots(1e9 + more, 500.0), *other_cells] for more in (0, 700)]) == [(1e9, 1e9 + 700)]


def test_a_run_without_further_boots_makes_no_step(tmp_path: Path) -> None:
    runs = [boots(1e9, 500.0), boots(1e9, 500.0), boots(1e9 + 5000, 0.0)[:1], boots(1e9, 500.0)]
    assert changed(tmp_path, runs) == []


def test_an_interval_of_its_own_comes_first(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        record = probed(2e9, 1e9, 100.0)
        records = [*boots(1e9, 500.0), record]
        entry = store.begin_run("whole", [one.id for one in records], digest="1", provenance={})
        for cell in records:
            store.record(entry.id, cell)
        found = history(store, Metric("whole", record.id))
    assert found is not None
    assert [found.resolution(point) for point in found.points] == [100.0]
    assert replace(found.points[0], interval=None).resolution("value") is None


# Does a step name what changed for its cell, and not what changed for others in the same run?

DJPROBE = KPROBE.replace("kprobe", "djprobe")


def boot(kernel: str, version: str, sources: dict[str, str]) -> dict[str, Any]:
    """A boot of a kernel with a module for each cell, by the state of the module's template."""
    return {
        "name": f"boot1/guest1-pentium4-{kernel}",
        "kernel": {"name": kernel, "release": "6.1", "packages": {f"linux-image-{kernel}": version}},
        "modules": {cell: {"name": f"lab_{_probe(cell)}", "key": state + cell} for cell, state in sources.items()},
        "sources": {state + cell: {f"lab_{_probe(cell)}_main.c": state} for cell, state in sources.items()},
    }


def _probe(cell: str) -> str:
    return cell.rpartition(": ")[0].split("/")[2] if ": " in cell else cell.split("/")[2]


def sentences(lab: Path, *boots: list[dict[str, Any]]) -> list[str]:
    """What the history of the kprobe says of its only step, between two runs of these boots."""
    runs = store_days(lab, [counted(1036), counted(1048)])
    metric = Metric(EXPERIMENT, KPROBE)
    with Store.open(lab) as store:
        for run, content in zip(runs, boots, strict=True):
            (store.entry(run).directory / FILE_NAME).write_text(json.dumps({"sessions": [], "boots": content}))
        found = history(store, metric)
        assert found is not None
        (step,) = steps_of(found).ordered
        return [cause.sentence for cause in causes(RunProvenances(store), step, metric)]


def test_another_cells_module_and_another_kernel_are_no_cause(tmp_path: Path) -> None:
    before = [boot("debian-686", "1", {KPROBE: "a", DJPROBE: "a"}), boot("lab-i386-up", "1", {})]
    after = [boot("debian-686", "1", {KPROBE: "b", DJPROBE: "b"}), boot("lab-i386-up", "2", {})]
    assert sentences(tmp_path, before, after) == ["module lab_kprobe: its template changed"]


def test_what_only_others_had_changed_is_nothing(tmp_path: Path) -> None:
    before = [boot("debian-686", "1", {KPROBE: "a", DJPROBE: "a"}), boot("lab-i386-up", "1", {})]
    after = [boot("debian-686", "1", {KPROBE: "a", DJPROBE: "b"}), boot("lab-i386-up", "2", {})]
    assert sentences(tmp_path, before, after) == []


def test_each_module_of_a_cell_is_its_own(tmp_path: Path) -> None:
    names = [f"{KPROBE}: first", f"{KPROBE}: second"]
    before, after = ([boot("debian-686", "1", dict.fromkeys(names, state))] for state in "ab")
    assert sentences(tmp_path, before, after) == ["module lab_kprobe: its template changed"]


def test_where_no_boot_has_the_cells_kernel_all_that_changed_is_said(tmp_path: Path) -> None:
    before, after = ([boot("another", version, {})] for version in "12")
    assert sentences(tmp_path, before, after) == ["kernel another: 6.1 (1) -> 6.1 (2)"]


# Are known steps of noisy series found, and none in noise of several kinds? All series have fixed seeds.

LEVEL, SCATTER = 1000.0, 5.0


SERIES = 200


def normal(chance: random.Random) -> float:
    return chance.gauss(0, SCATTER)


def heavy_tailed(chance: random.Random) -> float:
    """Student's t of three degrees of freedom."""
    squares = sum(chance.gauss(0, 1) ** 2 for _ in range(3))
    return float(SCATTER * chance.gauss(0, 1) / (squares / 3) ** 0.5)


def with_outliers(chance: random.Random) -> float:
    """One of twenty is slower by ten or forty deviations."""
    return normal(chance) + (chance.choice([50.0, 200.0]) if chance.random() < 0.05 else 0.0)


def skewed(chance: random.Random) -> float:
    return chance.expovariate(1 / SCATTER)


def coarse(chance: random.Random) -> float:
    """Of a clock that most readings are equal on."""
    return SCATTER * round(chance.gauss(0, 0.4))


def independent(of: Callable[[random.Random], float], chance: random.Random, count: int) -> Sequence[float]:
    return [LEVEL + of(chance) for _ in range(count)]


def drifting(chance: random.Random, count: int, strength: float) -> Sequence[float]:
    """Each deviation keeps ``strength`` of the one before it."""
    deviation, found = 0.0, []
    for _ in range(count + 50):
        deviation = strength * deviation + normal(chance)
        found.append(LEVEL + deviation)
    return found[50:]


def false_rate(series: Callable[[random.Random], Sequence[float]]) -> float:
    chance = random.Random(20)
    return sum(bool(steps_of_times(series(chance))) for _ in range(SERIES)) / SERIES


@NEEDS_RUPTURES
@pytest.mark.parametrize("count", [FEWEST_POINTS, 30, 100])
@pytest.mark.parametrize("noise", [normal, heavy_tailed, with_outliers, skewed, coarse])
def test_noise_has_no_steps(noise: Callable[[random.Random], float], count: int) -> None:
    assert false_rate(lambda chance: independent(noise, chance, count)) <= 0.05


@NEEDS_RUPTURES
@pytest.mark.parametrize(("strength", "most"), [(0.3, 0.05), (0.5, 0.05), (0.7, 0.06), (0.95, 0.13)])
@pytest.mark.parametrize("count", [30, 100, 300])
def test_a_slow_drift_seldom_has_steps(strength: float, most: float, count: int) -> None:
    assert false_rate(lambda chance: drifting(chance, count, strength)) <= most


def walking(chance: random.Random, count: int) -> Sequence[float]:
    """A level that goes up or down by a fifth of a deviation from point to point."""
    level, found = LEVEL, []
    for _ in range(count):
        level += chance.gauss(0, SCATTER / 5)
        found.append(level + normal(chance))
    return found


def rising(chance: random.Random, count: int) -> Sequence[float]:
    """Four deviations from the first point to the last."""
    return [LEVEL + 4 * SCATTER * at / count + normal(chance) for at in range(count)]


def swinging(chance: random.Random, count: int) -> Sequence[float]:
    """Three deviations up and down again, as with the seasons."""
    return [LEVEL + 3 * SCATTER * math.sin(2 * math.pi * at / 60) + normal(chance) for at in range(count)]


@NEEDS_RUPTURES
@pytest.mark.parametrize("count", [100, 300])
@pytest.mark.parametrize("series", [walking, rising, swinging])
def test_a_level_that_moves_all_the_time_seldom_has_steps(
    series: Callable[[random.Random, int], Sequence[float]], count: int
) -> None:
    assert false_rate(lambda chance: series(chance, count)) <= 0.12


@NEEDS_RUPTURES
# A short series has few places to compare with, and a step has to stand out from a possible drift.
@pytest.mark.parametrize(
    ("count", "place", "least"), [(300, 200, 0.9), (100, 50, 0.9), (100, 80, 0.9), (60, 30, 0.75), (40, 20, 0.6)]
)
def test_a_step_of_three_deviations_is_found_within_one_point(count: int, place: int, least: float) -> None:
    chance, found = random.Random(21), 0
    for _ in range(SERIES):
        noise = independent(normal, chance, count)
        places = steps_of_times([value + (3 * SCATTER if at >= place else 0) for at, value in enumerate(noise)])
        found += len(places) == 1 and abs(places[0] - place) <= 1
    assert found / SERIES >= least


@NEEDS_RUPTURES
def test_several_steps_up_and_down_with_outliers() -> None:
    chance = random.Random(22)
    levels = [0.0] * 40 + [30.0] * 30 + [10.0] * 50 + [40.0] * 25
    values = [LEVEL + level + with_outliers(chance) for level in levels]
    places = steps_of_times(values)
    assert len(places) == 3
    assert all(abs(place - known) <= 1 for place, known in zip(places, (40, 70, 120), strict=True))


@NEEDS_RUPTURES
def test_one_slow_run_is_no_step_wherever_it_is() -> None:
    chance = random.Random(23)
    quiet = independent(normal, chance, 40)
    for place in range(40):
        assert steps_of_times([value + (500 if at == place else 0) for at, value in enumerate(quiet)]) == []


def test_short_or_constant_history_has_no_step() -> None:
    assert steps_of_times([0.0] * 6 + [100.0] * 5) == []
    assert steps_of_times([7.0] * 50) == []
    assert steps_of_times([]) == []
    assert noise_of([1.0]) == 0.0


def test_the_noise_is_that_around_the_steps() -> None:
    chance = random.Random(24)
    values = [LEVEL + normal(chance) + (200 if at % 50 == 0 else 0) + (100 if at >= 500 else 0) for at in range(1000)]
    assert noise_of(values) == pytest.approx(SCATTER, rel=0.15)


@NEEDS_RUPTURES
def test_the_library_is_asked_wherever_it_may_find_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import takes half a second: a series without an abrupt place does not pay it, and loses no step by that."""
    asked = 0
    chance = random.Random(25)
    for _ in range(400):
        count = chance.choice([FEWEST_POINTS, 15, 16, 17, 25, 40, 100])
        noise = chance.choice([normal, heavy_tailed, with_outliers, skewed, coarse])
        place, size = chance.randrange(count), chance.choice([0, 2, 3, 5]) * SCATTER
        values = [value + size * (at >= place) for at, value in enumerate(independent(noise, chance, count))]
        with monkeypatch.context() as patched:
            patched.setattr(step_fit, "_has_abrupt_place", lambda *_: True)
            known = steps_of_times(values)
        assert steps_of_times(values) == known
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, "ruptures", None)
            try:
                steps_of_times(values)
            except HostError:
                asked += 1
    assert asked < 300


def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ruptures", None)
    assert steps_of_times([1.0, 2.0] * 5) == []
    with pytest.raises(HostError, match=r"need the library ruptures[\s\S]*probe-lab\[statistics\]"):
        steps_of_times([1.0, 2.0] * 10)
