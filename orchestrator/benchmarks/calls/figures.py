# SPDX-License-Identifier: GPL-2.0-only
"""The figures of a cell's measurements: its samples, the probe's overhead and the verdict on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from orchestrator.benchmarks.calls.outcome import Outcome, joined
from orchestrator.benchmarks.calls.workload import Measurement
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import UNITS, Clock, ProfileEvidence
from orchestrator.results.statistics import mean, median, median_interval, spread_without_extremes


@dataclass(frozen=True)
class Figures:
    """Samples and the figures derived from them, in the clock's unit per call. ``interval`` is the overhead's.

    ``outcome`` is what the calls returned, None where that is not known.
    """

    samples: tuple[float, ...]
    value: float
    overhead: float | None
    interval: tuple[float, float] | None
    verdict: Literal["none"] | None
    notes: tuple[str, ...]
    entry: str
    calls: int
    batches: int
    disturbed: int
    outcome: Outcome | None


@dataclass(frozen=True)
class Effect:
    """The probe's overhead with its interval; ``notes`` say why it has no verdict, or how uncertain it is."""

    overhead: float | None = None
    interval: tuple[float, float] | None = None
    verdict: Literal["none"] | None = None
    notes: tuple[str, ...] = ()


def exact_baseline(measured: Measurement) -> Figures:
    """Figures in instructions of the cell without a probe."""
    value = mean(measured.samples)
    interval = (min(measured.samples) - value, max(measured.samples) - value)
    return _figures([measured], measured.samples, value, Effect(0.0, interval, None, _exact_notes(measured)))


def exact_figures(measured: Measurement) -> Figures:
    """Figures in instructions of a cell with a probe; its overhead follows from its baseline (``exact_effect``)."""
    effect = Effect(notes=_exact_notes(measured))
    return _figures([measured], measured.samples, mean(measured.samples), effect)


def _exact_notes(measured: Measurement) -> tuple[str, ...]:
    notes = []
    if measured.scatter:
        low, high = min(measured.samples), max(measured.samples)
        notes.append(
            f"samples lie between {low:.10g} and {high:.10g} instructions ({100 * measured.scatter / low:.2g} %): what "
            "a call finds in the kernel is not always the same, and the mean is no exact count"
        )
    if measured.warming:
        notes.append(
            f"the first calls after a timer tick cost something else: {measured.warming} before each batch do not count"
        )
    return tuple(notes)


def exact_effect(value: float, baseline: float, samples: Sequence[float]) -> Effect:
    """What the probe adds to a call, in instructions; ``samples`` are the baseline's.

    They scatter where its calls did in another guest, and the calls with the probe in this one did not. Raises
    EvidenceError where they do not scatter and the probe adds nothing.
    """
    overhead = value - baseline
    if len(set(samples)) > 1:
        low, high = value - max(samples), value - min(samples)
        note = f"the baseline's samples scatter: the overhead lies between {low:.10g} and {high:.10g} instructions"
        if low <= 0:
            return Effect(overhead, (low, high), "none", (f"no verdict: {note}",))
        return Effect(overhead, (low, high), notes=(note,))
    if overhead <= 0:
        # Hits are counted in a separate pass; on the exact clock the overhead proves the hits of the timed pass.
        raise EvidenceError(
            f"with the probe a call costs {value:g} instructions, without it {baseline:g}: it was not hit"
        )
    return Effect(overhead, (overhead, overhead))


def overhead_by_purpose(probed: ProfileEvidence | None, plain: ProfileEvidence | None) -> Mapping[str, float]:
    """Instructions that a probe adds to a call, by purpose; nothing where either is without purposes."""
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
    """Figures of samples that scatter. ``plain`` samples, without the probe, are taken around and between ``probed``.

    They are in the clock's unit: nanoseconds, or instructions of runs with timer ticks and of calls that scatter.
    The value is the ``centre`` of the samples.

    Each sample with the probe is compared with the mean of its two neighbours; the overhead is the median of these
    differences. There is no verdict where the baseline's drift exceeds the overhead, or where the interval contains
    zero. Without ``probed`` these are the figures of the baseline itself.
    """
    unit = UNITS[clock]
    before, samples = (
        [(one.nanoseconds if clock == "wall" else one.samples)[0] for one in measured] for measured in (plain, probed)
    )
    if not probed:
        return _figures(plain, before, centre(before), Effect(0.0, (0.0, 0.0)))
    pairs = pairwise(before)
    differences = [sample - (one + other) / 2 for sample, (one, other) in zip(samples, pairs, strict=True)]
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
    return _figures(probed, samples, centre(samples), Effect(overhead, interval, verdict, tuple(notes)))


def _figures(measured: Sequence[Measurement], samples: Sequence[float], value: float, effect: Effect) -> Figures:
    outcomes = [one.outcome for one in measured if one.outcome is not None]
    return Figures(
        samples=tuple(samples),
        value=value,
        overhead=effect.overhead,
        interval=effect.interval,
        verdict=effect.verdict,
        notes=effect.notes,
        entry=measured[0].entry,
        calls=measured[0].calls,
        batches=sum(one.batches for one in measured),
        disturbed=sum(one.disturbed for one in measured),
        outcome=joined(outcomes) if outcomes else None,
    )
