# SPDX-License-Identifier: GPL-2.0-only
"""Samples of calls, and the figures that follow from them: a value, an overhead with its interval, a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from orchestrator.benchmarks.calls.call_results import CallOutcome, joined
from orchestrator.errors import EvidenceError
from orchestrator.plain_text import shown
from orchestrator.profile.counted.timed_samples import Timed
from orchestrator.results.contract import UNITS, Clock, ProfileEvidence
from orchestrator.results.statistics import mean, median, median_interval, spread_without_extremes


@dataclass(frozen=True)
class Measurement:
    """Samples of the cost of a call, the entry that calls used, and the batches that the samples are made of.

    ``samples`` are in units of the guest's TSC, which are instructions on the exact clock; ``nanoseconds`` are the same
    samples by the guest's clock. ``disturbed`` batches were discarded and repeated. ``number`` and ``outcome`` are
    those of system calls. A ``batch`` has at most so many calls; an ``empty`` batch takes so many TSC units. ``ticks``
    are each sample's batches and TSC units, with nothing subtracted. ``is_uniform``: a single call costs as much as one
    of many. ``warming`` calls precede each batch and are not counted. ``live`` are the bytes that the process executed
    at a place, if it was asked. ``costs`` has how many calls took so many instructions, where each was timed alone.
    ``cycle`` has the same of as many calls as it takes until their costs repeat, if they do: then the samples are of
    whole cycles, equal and exact.
    """

    samples: tuple[float, ...]
    nanoseconds: tuple[float, ...]
    entry: str
    calls: int
    batches: int
    disturbed: int
    number: int | None = None
    outcome: CallOutcome | None = None
    batch: int = 1
    empty: int = 0
    ticks: tuple[tuple[int, int], ...] = ()
    is_uniform: bool = False
    warming: int = 0
    live: bytes | None = None
    costs: Counter[int] = field(default_factory=Counter)
    cycle: Counter[int] = field(default_factory=Counter)

    @property
    def timed(self) -> Timed:
        return Timed(self.empty, self.ticks)

    @property
    def varies(self) -> bool:
        """Whether calls cost different numbers of instructions, on the exact clock."""
        return len(set(self.samples)) > 1 or len(self.costs) > 1

    @property
    def scatter(self) -> float:
        """The range of the samples, in their unit: 0 where all calls cost the same on the exact clock."""
        return max(self.samples) - min(self.samples) if self.samples else 0.0


def repeating(costs: Sequence[int], batch: int) -> Counter[int]:
    """The costs of as many calls as it takes until they repeat, the same in each batch.

    Empty where they do not repeat, or all are alike. Other calls between batches may have moved them on, so that each
    begins anywhere. One batch must have two periods, and the costs of a short one must be a part of the cycle.
    """
    batches = [costs[first : first + batch] for first in range(0, len(costs), batch)]
    period = max(map(_period, batches), default=0)
    whole = [batche for batche in batches if len(batche) >= 2 * period]
    if not whole or any(batche[period:] != batche[: max(0, len(batche) - period)] for batche in batches):
        return Counter()
    cycle = whole[0][:period]
    is_cycle = all(_is_part(batche[:period], cycle) for batche in batches)
    return Counter(cycle) if len(set(cycle)) > 1 and is_cycle else Counter()


def _is_part(costs: Sequence[int], cycle: Sequence[int]) -> bool:
    """Whether these costs, of at most one cycle, follow each other in it from some call on."""
    twice = [*cycle, *cycle]
    return any(twice[first : first + len(costs)] == [*costs] for first in range(len(cycle)))


def _period(costs: Sequence[int]) -> int:
    """The least shift with which the costs agree where they overlap (by the borders of Knuth, Morris and Pratt)."""
    borders, border = [0], 0
    for cost in costs[1:]:
        while border and cost != costs[border]:
            border = borders[border - 1]
        border += cost == costs[border]
        borders.append(border)
    return len(costs) - borders[-1]


def together(ones: Sequence[Measurement]) -> Measurement:
    """Samples of the same calls that were measured one by one. The outcome is that of the last one."""
    return replace(
        ones[-1],
        samples=tuple(sample for measurement in ones for sample in measurement.samples),
        nanoseconds=tuple(time for measurement in ones for time in measurement.nanoseconds),
        batches=sum(measurement.batches for measurement in ones),
        disturbed=sum(measurement.disturbed for measurement in ones),
        ticks=tuple(ticks for measurement in ones for ticks in measurement.ticks),
        costs=sum((measurement.costs for measurement in ones), Counter[int]()),
    )


@dataclass(frozen=True)
class Effect:
    """The probe's overhead and its interval; ``notes`` say why there is no verdict, or how uncertain it is."""

    overhead: float | None = None
    interval: tuple[float, float] | None = None
    verdict: Literal["none"] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Figures(Effect):
    """Samples and the figures derived from them, in the clock's unit per call; ``calls`` are those of the first.

    ``plain`` is what calls that vary cost without the probe, around and between these samples.
    """

    samples: tuple[float, ...]
    value: float
    entry: str
    calls: int
    batch: int
    batches: int
    disturbed: int
    outcome: CallOutcome | None
    plain: float | None = None


def exact_baseline(measured: Measurement) -> Figures:
    """Figures in instructions of the cell without a probe."""
    value = mean(measured.samples)
    interval = (min(measured.samples) - value, max(measured.samples) - value)
    return figures_of([measured], measured.samples, value, Effect(0.0, interval, None, exact_notes(measured)))


def exact_figures(measured: Measurement) -> Figures:
    """Figures in instructions of a cell with a probe; ``exact_effect`` adds its overhead."""
    return figures_of([measured], measured.samples, mean(measured.samples), Effect(notes=exact_notes(measured)))


def exact_notes(measured: Measurement) -> tuple[str, ...]:
    """Notes on samples of the exact clock that scatter, repeat after a period, or leave calls behind a tick out."""
    notes = []
    if measured.scatter:
        low, high, varying = min(measured.samples), max(measured.samples), ""
        if len(measured.costs) > 1:
            ((usual, times),), total = measured.costs.most_common(1), measured.costs.total()
            rarer = measured.costs.keys() - {usual}
            varying = (
                f"calls vary: {100 * times / total:.3g} % of {total} take {usual} instructions, the others "
                f"{min(rarer)} to {max(rarer)}; "
            )
        notes.append(
            f"{varying}samples lie between {low:.10g} and {high:.10g} instructions "
            f"({100 * measured.scatter / low:.2g} %)"
        )
    if measured.cycle:
        kinds = [f"{times} {'takes' if times == 1 else 'take'} {cost}" for cost, times in measured.cycle.most_common()]
        notes.append(
            f"the costs of calls repeat after {measured.cycle.total()}: {', '.join(shown(kinds, 4, '{} others'))} "
            "instructions; samples are of whole periods"
        )
    if measured.warming:
        notes.append(
            f"the first calls after a timer tick differ in cost: {measured.warming} before each batch are not counted"
        )
    return tuple(notes)


def exact_effect(value: float, baseline: float, samples: Sequence[float]) -> Effect:
    """What the probe adds to a call, in instructions; ``samples`` are those of the baseline.

    They scatter where calls scattered in the baseline's guest, and did not in this one. Raises EvidenceError where they
    do not scatter and the probe adds nothing.
    """
    overhead = value - baseline
    if len(set(samples)) > 1:
        low, high = value - max(samples), value - min(samples)
        note = f"the baseline's samples scatter: the overhead lies between {low:.10g} and {high:.10g} instructions"
        if low <= 0:
            return Effect(overhead, (low, high), "none", (f"no verdict: {note}",))
        return Effect(overhead, (low, high), notes=(note,))
    if overhead <= 0:
        # Hits are counted in a pass of their own. The overhead on the exact clock proves those of the timed pass.
        raise EvidenceError(
            f"with the probe a call costs {value:g} instructions, without it {baseline:g}: it was not hit"
        )
    return Effect(overhead, (overhead, overhead))


def overhead_by_purpose(probed: ProfileEvidence | None, plain: ProfileEvidence | None) -> Mapping[str, float]:
    """Instructions that a probe adds to a call, by purpose; empty where either profile is without purposes."""
    if probed is None or plain is None or not probed.purposes or not plain.purposes:
        return {}
    added = {
        name: Fraction(probed.purposes.get(name, 0), probed.calls) - Fraction(plain.purposes.get(name, 0), plain.calls)
        for name in {**plain.purposes, **probed.purposes}
    }
    return {name: float(value) for name, value in added.items() if value}


def paired_figures(
    plain: Sequence[Measurement],
    probed: Sequence[Measurement],
    clock: Clock,
    centre: Callable[[Sequence[float]], float] = median,
) -> Figures:
    """Figures of samples that scatter, in the clock's unit; their value is the ``centre`` of the samples.

    ``plain`` samples, without the probe, are taken around and between the ``probed`` ones. Each probed sample is
    compared with the mean of its two neighbours; the overhead is the median of the differences. There is no verdict
    where the baseline drifts by more than the overhead, or where the interval contains zero. Without ``probed`` these
    are the figures of the baseline itself.
    """
    unit = UNITS[clock]
    before, samples = (
        [(measurement.nanoseconds if clock == "wall" else measurement.samples)[0] for measurement in measured]
        for measured in (plain, probed)
    )
    if not probed:
        return figures_of(plain, before, centre(before), Effect(0.0, (0.0, 0.0)))
    differences = differences_from_neighbours(before, samples)
    overhead, interval = median(differences), median_interval(differences)
    drift = spread_without_extremes(before)
    notes = []
    if drift >= abs(overhead):
        notes.append(
            f"no verdict: the baseline drifted by {drift:.0f} {unit} between samples, "
            f"and the probe's effect is {overhead:.0f} {unit}"
        )
    elif interval[0] <= 0:
        notes.append(f"no verdict: the overhead lies between {interval[0]:.0f} and {interval[1]:.0f} {unit}")
    verdict: Literal["none"] | None = "none" if notes else None
    return figures_of(probed, samples, centre(samples), Effect(overhead, interval, verdict, tuple(notes)))


def differences_from_neighbours(before: Sequence[float], samples: Sequence[float]) -> Sequence[float]:
    """The difference of each sample from the mean of its neighbours in ``before``, one earlier and one later."""
    return [sample - (earlier + later) / 2 for sample, (earlier, later) in zip(samples, pairwise(before), strict=True)]


def other_state(baseline: Sequence[float], plain: Sequence[float]) -> str | None:
    """A note where calls cost something else in the baseline's cell than around the samples of this one."""
    if min(plain) <= max(baseline) and min(baseline) <= max(plain):
        return None
    return (
        f"without the probe these calls now take {mean(plain):.10g} instructions, and {mean(baseline):.10g} when the "
        "baseline was measured: the overhead is to these calls, measured in turn with those of the probe"
    )


def run_figures(samples: Sequence[float], plain: Sequence[float]) -> Figures:
    """Figures of counted runs, in instructions; with a probe, ``plain`` ones are without it.

    The interval has all differences between a run with the probe and one without.
    """
    value = median(samples)
    if not plain:
        effect = Effect(0.0, (min(samples) - value, max(samples) - value))
    else:
        overhead, low, high = value - median(plain), min(samples) - max(plain), max(samples) - min(plain)
        note = f"no verdict: a run takes {low:.0f} to {high:.0f} instructions more with the probe than without it"
        effect = Effect(overhead, (low, high)) if low > 0 else Effect(overhead, (low, high), "none", (note,))
    runs = Measurement(tuple(samples), (), "program", calls=1, batches=len(samples), disturbed=0)
    return figures_of([runs], samples, value, effect)


def figures_of(measured: Sequence[Measurement], samples: Sequence[float], value: float, effect: Effect) -> Figures:
    """The figures of an ``effect``, with what the first measurement says of the calls and what all batches were."""
    outcomes = [measurement.outcome for measurement in measured if measurement.outcome is not None]
    return Figures(
        samples=tuple(samples),
        value=value,
        **vars(effect),
        entry=measured[0].entry,
        calls=measured[0].calls,
        batch=measured[0].batch,
        batches=sum(measurement.batches for measurement in measured),
        disturbed=sum(measurement.disturbed for measurement in measured),
        outcome=joined(outcomes) if outcomes else None,
    )
