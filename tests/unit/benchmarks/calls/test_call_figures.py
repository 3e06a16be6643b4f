# SPDX-License-Identifier: GPL-2.0-only
"""What a cell's measurements come to, on both clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from random import Random
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast

import pytest
from record_builders import cell

from orchestrator.benchmarks.calls import measurement
from orchestrator.benchmarks.calls.cell_work import PointObservations
from orchestrator.benchmarks.calls.kind import KIND
from orchestrator.benchmarks.calls.samples import (
    Measurement,
    exact_baseline,
    exact_effect,
    exact_figures,
    other_state,
    paired_figures,
    repeating,
)
from orchestrator.benchmarks.calls.varying_calls import varying_figures
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import CellRecord


def measured(value: float, samples: int = 1) -> Measurement:
    """A measurement whose two clocks cannot be mistaken for each other."""
    return Measurement((value * 2,) * samples, (value,) * samples, "sysenter", 5000, batches=3, disturbed=1)


def singly(costs: Counter[int]) -> Measurement:
    """A sample whose calls were each timed alone."""
    each = sum(cost * calls for cost, calls in costs.items()) / costs.total()
    return Measurement((each,), (each,), "function", costs.total(), batches=3, disturbed=0, costs=costs)


def test_exact_figures_are_counts_and_have_no_overhead_yet() -> None:
    figures = exact_figures(measured(500.0, 4))
    assert (figures.samples, figures.value) == ((1000.0,) * 4, 1000.0)
    assert (figures.overhead, figures.interval, figures.verdict, figures.notes) == (None, None, None, ())
    assert (figures.entry, figures.calls, figures.batches, figures.disturbed) == ("sysenter", 5000, 3, 1)


def test_exact_overhead_is_a_difference_of_counts() -> None:
    effect = exact_effect(1000.0, 960.0, (960.0, 960.0))
    assert (effect.overhead, effect.interval, effect.verdict, effect.notes) == (40.0, (40.0, 40.0), None, ())


def test_the_exact_baseline_has_no_overhead() -> None:
    assert exact_baseline(measured(211.0)).overhead == 0.0


@pytest.mark.parametrize("baseline", [1000.0, 1001.0])
def test_a_probe_without_overhead_fails_the_cell(baseline: float) -> None:
    with pytest.raises(EvidenceError, match="it was not hit"):
        exact_effect(1000.0, baseline, (baseline,))


def test_wall_overhead_is_taken_against_the_neighbours() -> None:
    # The host gets slower by 10 ns a round; the probe costs 300 throughout.
    plain = [measured(1000.0 + 10 * number) for number in range(10)]
    probed = [measured(1305.0 + 10 * number) for number in range(9)]
    figures = paired_figures(plain, probed, "wall")
    assert figures.overhead == 300.0
    assert figures.interval == (300.0, 300.0)
    assert figures.value == 1345.0
    assert figures.samples == tuple(1305.0 + 10 * number for number in range(9))
    assert figures.verdict is None
    assert (figures.batches, figures.disturbed) == (27, 9)


def test_no_verdict_where_the_drift_is_larger_than_the_effect() -> None:
    plain = [measured(1000.0 + 100 * number) for number in range(10)]
    probed = [measured(1350.0 + 100 * number) for number in range(9)]
    figures = paired_figures(plain, probed, "wall")
    assert figures.overhead == 300.0
    assert figures.verdict == "none"
    assert figures.notes == (
        "no verdict: the baseline drifted by 700 ns between samples, and the probe's effect is 300 ns",
    )


def test_no_verdict_where_the_interval_has_both_signs() -> None:
    plain = [measured(1000.0)] * 10
    probed = [measured(1000.0 + difference) for difference in (-90, -80, -70, -5, 20, 50, 60, 70, 80)]
    figures = paired_figures(plain, probed, "wall")
    assert (figures.overhead, figures.interval, figures.verdict) == (20.0, (-80.0, 70.0), "none")
    assert "lies between -80 and 70 ns" in figures.notes[0]


def test_one_hiccup_of_the_host_is_no_drift() -> None:
    # It falls on two differences; of the twelve that are the default, the interval leaves out two on either side.
    plain = [measured(1000.0)] * 5 + [measured(90_000.0)] + [measured(1000.0)] * 7
    figures = paired_figures(plain, [measured(1200.0)] * 12, "wall")
    assert (figures.overhead, figures.verdict) == (200.0, None)


def test_the_wall_baseline_is_a_median() -> None:
    figures = paired_figures([measured(value) for value in (5.0, 1.0, 2.0, 900.0, 3.0)], [], "wall")
    assert (figures.value, figures.overhead, figures.verdict) == (3.0, 0.0, None)


def test_runs_with_ticks_are_compared_in_instructions() -> None:
    plain = [measured(500.0 + number) for number in range(7)]
    figures = paired_figures(plain, [measured(560.0 + number) for number in range(6)], "instructions")
    assert (figures.samples[0], figures.overhead, figures.interval) == (1120.0, 119.0, (119.0, 119.0))
    hidden = paired_figures(plain, [measured(501.0 + number) for number in range(6)], "instructions")
    assert hidden.verdict == "none"
    assert "drifted by 8 instructions between samples" in hidden.notes[0]


def test_an_overhead_is_as_uncertain_as_its_baseline() -> None:
    """That of another guest may scatter, where a cell is measured again after a failure."""
    timed = cell("djprobe", overhead=None, interval=None)  # 462 instructions

    def compared(*samples: float) -> CellRecord:
        return KIND.compare(cast("Any", None), timed, [cell("none", samples=samples, value=fmean(samples))])

    exact, scattered, hidden = compared(409.0, 409.0), compared(407.0, 411.0), compared(455.0, 475.0)
    assert (exact.overhead, exact.interval, exact.verdict, exact.notes) == (53.0, (53.0, 53.0), None, ())
    assert (scattered.overhead, scattered.interval, scattered.verdict) == (53.0, (51.0, 55.0), None)
    said = "the baseline's samples scatter: the overhead lies between"
    assert scattered.notes == (f"{said} 51 and 55 instructions",)
    assert (hidden.overhead, hidden.interval, hidden.verdict) == (-3.0, (-13.0, 7.0), "none")
    assert hidden.notes == (f"no verdict: {said} -13 and 7 instructions",)


@pytest.mark.parametrize(("scatters", "repeats", "samples"), [(True, 1, 6), (True, 4, 6), (True, 9, 9), (False, 4, 4)])
def test_calls_that_scatter_have_samples_for_an_interval(
    monkeypatch: pytest.MonkeyPatch, scatters: bool, repeats: int, samples: int
) -> None:
    """The interval of fewer than six differences does not contain the median in 95 of 100 cases."""

    @contextmanager
    def armed(work: object) -> Iterator[Any]:
        attachment = SimpleNamespace(renewal=lambda: None, entered_module=None, has_buffers=False)
        yield SimpleNamespace(attachment=attachment, check_same=lambda when: None)

    counted, nowhere = count(), cast("Any", None)
    monkeypatch.setattr(measurement, "armed_probe", armed)
    plain, probed = (singly(Counter({cost: 9, cost + 2000: 1})) for cost in (1000, 1120))
    monkeypatch.setattr(measurement, "_timed", lambda work: plain if scatters else measured(500.0))
    monkeypatch.setattr(measurement, "_timed_between", lambda work, armed: probed if scatters else measured(560.0))
    monkeypatch.setattr(measurement, "_proof", lambda *of: PointObservations(nowhere, nowhere, next(counted)))
    asked = SimpleNamespace(repeats=repeats, clock="instructions", metric="cost per call", counts_classes=False)
    cache = SimpleNamespace(baseline=lambda cell: None)
    facts = {"workload": None, "profile": None, "kind": probes()["kprobe"], "cache": cache}
    work: Any = SimpleNamespace(cell=asked, varies=scatters, **facts)
    figures, _ = measurement._paired(work, None)
    assert (len(figures.samples), figures.overhead) == (samples, 120.0)
    assert next(counted) == 2  # the first round and the last


def opening(state: Random, added: int = 0, *, refills: float = 0.07, own: float = 0.0) -> Counter[int]:
    """Costs as of open() and close() on Linux 6.1: some calls fetch a slab, one in a hundred a new page."""

    def cost() -> int:
        refill = state.choice((163, 762, 2114, 2118)) if state.random() < refills else 0
        page = 5000 + state.randrange(300) if state.random() < 0.001 else 0
        return 5896 + refill + page + added + (176 if state.random() < own else 0)

    return Counter(cost() for _ in range(5000))


@pytest.mark.parametrize("seed", range(5))
def test_what_a_probe_adds_to_calls_that_vary_is_exact(seed: int) -> None:
    """However often the kernel does its other work meanwhile: the means differ by up to ten instructions more."""
    state = Random(seed)
    plain = [singly(opening(state, refills=state.uniform(0.06, 0.08))) for _ in range(7)]
    probed = [singly(opening(state, 127, refills=state.uniform(0.06, 0.08))) for _ in range(6)]
    figures = varying_figures(plain, probed)
    assert (figures.overhead, figures.interval, figures.verdict) == (127.0, (127.0, 127.0), None)
    assert len(figures.samples) == 6
    assert figures.value == pytest.approx(fmean(one.samples[0] for one in probed))
    assert figures.plain == pytest.approx(fmean(one.samples[0] for one in plain))
    (note,) = figures.notes
    assert note.startswith("calls vary: 9")


def test_a_baseline_measured_in_another_state_is_told() -> None:
    """Creating a file took 7,618 instructions more until the kernel's random numbers were ready."""
    note = other_state([22_855.0, 22_840.0], [16_490.0, 16_498.0, 16_506.0])
    assert note is not None
    assert note.startswith("without the probe these calls now take 16498 instructions, and 22847.5 when the baseline ")
    assert other_state([16_490.0, 16_500.0], [22_840.0, 22_855.0]) is not None
    assert other_state([16_490.0, 16_500.0], [16_498.0, 16_506.0]) is None


def test_what_only_some_hits_do_counts_in_the_mean() -> None:
    """The event that begins a page of a buffer costs more, in one hit of fifty."""
    state = Random(1)
    plain = [singly(opening(state)) for _ in range(7)]
    figures = varying_figures(plain, [singly(opening(state, 300, own=0.02)) for _ in range(6)])
    assert figures.overhead == pytest.approx(300 + 0.02 * 176, rel=0.005)
    assert figures.interval == pytest.approx((figures.overhead, figures.overhead), rel=0.005)


@pytest.mark.parametrize("number", [1009, 4099])
def test_what_each_nth_hit_does_is_within_the_interval_though_samples_have_it_equally_often(number: int) -> None:
    """Each sample begins with the program's first hit: all have the work once, or four times."""
    plain = [singly(Counter({5896: 5000}))] * 7

    def probed(calls: int) -> Measurement:
        done = calls // number
        return singly(Counter({6000: calls - done, 6000 + 1402: done}))

    figures = varying_figures(plain, [probed(5000 - fewer) for fewer in range(0, 600, 100)])
    assert figures.interval is not None
    assert figures.interval[0] <= 104 + 1402 / number <= figures.interval[1]


def test_means_that_contradict_the_kinds_widen_the_interval() -> None:
    """As where a probe has the kernel refill its slabs twice as often."""
    state = Random(2)
    plain = [singly(opening(state)) for _ in range(7)]
    figures = varying_figures(plain, [singly(opening(state, 100, refills=0.14)) for _ in range(6)])
    assert figures.interval is not None
    more = 100 + 0.07 * (163 + 762 + 2114 + 2118) / 4
    assert (figures.overhead, figures.interval[0]) == (100.0, 100.0)
    assert figures.interval[1] > more
    assert figures.notes[-1].startswith("the probe adds 100 instructions to calls of equal kinds, and 1")


@pytest.mark.parametrize("width", [2, 64, 100_000])
def test_costs_of_any_distribution_have_an_interval_with_the_truth(width: int) -> None:
    """Calls that take two ways equally often, many ways, and calls of which no two cost the same."""
    state = Random(width)

    def costs(added: int) -> Measurement:
        return singly(Counter(10_000 + added + 7 * state.randrange(width) for _ in range(2000)))

    figures = varying_figures([costs(0) for _ in range(7)], [costs(50) for _ in range(6)])
    assert figures.interval is not None
    assert figures.interval[0] <= 50 <= figures.interval[1]
    if width == 100_000:
        assert figures.verdict == "none"
        assert figures.notes[-1].startswith("no verdict: the overhead lies between")
    else:
        assert figures.overhead == 50.0


@pytest.mark.parametrize(
    ("costs", "cycle"),
    [
        ([1, 1, 2, 1, 1, 2], {1: 2, 2: 1}),
        ([1, 1, 2, 1, 1, 2, 1, 1, 2], {1: 2, 2: 1}),
        ([1, 1, 2, 1, 1, 2, 2, 1], {1: 2, 2: 1}),
        ([1, 1, 2, 1, 1, 2, 2, 1, 1, 2, 1], {1: 2, 2: 1}),
        ([1, 1, 2, 1, 1, 2, 1, 1, 3], {}),
        ([1, 1, 2, 1, 1, 2, 3], {}),
        ([1, 1, 2, 1, 1, 2, 2, 2], {}),
        ([1, 1, 2, 1, 1, 2, 1, 1, 1], {}),
        ([1, 1, 2, 1, 1, 2, 2, 1, 2, 2, 1], {}),
        ([1, 1, 1, 1, 1, 1, 1, 1], {}),
    ],
)
def test_costs_repeat_only_where_each_batch_is_a_part_of_the_cycle(costs: Sequence[int], cycle: dict[int, int]) -> None:
    assert repeating(costs, 6) == cycle


def test_batches_of_equal_counts_in_another_order_do_not_repeat() -> None:
    assert repeating([1, 2, 3, 4, 1, 2, 3, 4, 4, 3, 2, 1, 4, 3, 2, 1], 8) == {}
