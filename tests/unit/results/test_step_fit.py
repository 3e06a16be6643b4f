# SPDX-License-Identifier: GPL-2.0-only
"""Are known steps of noisy series found, and none in noise of several kinds? All series have fixed seeds."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence

import pytest

from orchestrator.errors import HostError
from orchestrator.results import history_steps
from orchestrator.results.history_steps import FEWEST_POINTS, noise_of, steps_of_times

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


@pytest.mark.parametrize("count", [FEWEST_POINTS, 30, 100])
@pytest.mark.parametrize("noise", [normal, heavy_tailed, with_outliers, skewed, coarse])
def test_noise_has_no_steps(noise: Callable[[random.Random], float], count: int) -> None:
    assert false_rate(lambda chance: independent(noise, chance, count)) <= 0.05


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


@pytest.mark.parametrize("count", [100, 300])
@pytest.mark.parametrize("series", [walking, rising, swinging])
def test_a_level_that_moves_all_the_time_seldom_has_steps(
    series: Callable[[random.Random, int], Sequence[float]], count: int
) -> None:
    assert false_rate(lambda chance: series(chance, count)) <= 0.12


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


def test_several_steps_up_and_down_with_outliers() -> None:
    chance = random.Random(22)
    levels = [0.0] * 40 + [30.0] * 30 + [10.0] * 50 + [40.0] * 25
    values = [LEVEL + level + with_outliers(chance) for level in levels]
    places = steps_of_times(values)
    assert len(places) == 3
    assert all(abs(place - known) <= 1 for place, known in zip(places, (40, 70, 120), strict=True))


def test_one_slow_run_is_no_step_wherever_it_is() -> None:
    chance = random.Random(23)
    quiet = independent(normal, chance, 40)
    for place in range(40):
        assert steps_of_times([value + (500 if at == place else 0) for at, value in enumerate(quiet)]) == []


def test_what_is_too_short_or_constant_has_none() -> None:
    assert steps_of_times([0.0] * 6 + [100.0] * 5) == []
    assert steps_of_times([7.0] * 50) == []
    assert steps_of_times([]) == []
    assert noise_of([1.0]) == 0.0


def test_the_noise_is_that_around_the_steps() -> None:
    chance = random.Random(24)
    values = [LEVEL + normal(chance) + (200 if at % 50 == 0 else 0) + (100 if at >= 500 else 0) for at in range(1000)]
    assert noise_of(values) == pytest.approx(SCATTER, rel=0.15)


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
            patched.setattr(history_steps, "_has_abrupt_place", lambda _: True)
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
