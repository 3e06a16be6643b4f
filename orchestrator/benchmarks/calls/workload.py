# SPDX-License-Identifier: GPL-2.0-only
"""What calls in a guest returned and took: measurements, and the figures of a cell that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Literal

from orchestrator.catalog.words import error_name, error_numbers
from orchestrator.errors import EvidenceError
from orchestrator.plain_text import cut
from orchestrator.probes.attachment import MOST_VALUES, CallResults
from orchestrator.profile.counts import Timed
from orchestrator.results.contract import UNITS, Clock, ProfileEvidence
from orchestrator.results.statistics import mean, median, median_interval, spread_without_extremes

SUCCESS = "success"
Expected = int | str
"""What each call must return: ``success``, an error by its name, or a number."""

_LARGEST_DECIMAL = (1 << 31) - 1
_LONGEST_PHRASE = 200


@dataclass(frozen=True)
class Outcome:
    """What the calls of timed processes returned.

    ``timed``: the last call before the timed ones, and the last of each timed batch: the registers have its result, and
    to note more would be timed as well. ``untimed``: the calls behind the samples, one by one; there may be none.
    """

    timed: CallResults
    untimed: CallResults

    @property
    def results(self) -> CallResults:
        return self.timed.followed_by(self.untimed)

    @property
    def uses_up(self) -> bool:
        """Whether calls began to fail while they were timed, and failed from then on; False where none followed."""
        return self.timed.stopped_succeeding and self.untimed.failed == self.untimed.observed > 0


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of several processes' calls, in their order."""
    return Outcome(
        reduce(CallResults.followed_by, [one.timed for one in outcomes]),
        reduce(CallResults.followed_by, [one.untimed for one in outcomes]),
    )


def check_expected(expected: Expected | None, results: CallResults, which: str) -> None:
    """Raise EvidenceError unless all of ``which`` calls returned what is expected; None expects nothing."""
    if expected is None or not results.observed:
        return
    if expected == SUCCESS:
        right = not results.failed
    else:
        value = -error_numbers()[expected] if isinstance(expected, str) else expected
        right = not results.other and {found for found, _ in results.values} == {value}
    if not right:
        raise EvidenceError(f"expected {expected} of each call; the {which} ones returned {summary(results)}")


def named(value: int) -> str:
    """A returned value: an error's name, a decimal number, or from 2**31 on, as addresses are, a hexadecimal one."""
    if value < 0:
        return error_name(-value)
    return str(value) if value <= _LARGEST_DECIMAL else f"{value:#x}"


def listed(results: CallResults) -> str:
    """The different values with the number of calls that returned each: ``0 x 510, EMFILE x 490``."""
    parts = [f"{named(value)} x {calls}" for value, calls in results.values]
    parts += [f"others x {results.other}"] if results.other else []
    return phrase(", ".join(parts))


def summary(results: CallResults) -> str:
    """The outcome in a few words: ``always EBADF``, or the different values where calls failed and succeeded."""
    if len(results.values) == 1 and not results.other:
        return f"always {named(results.values[0][0])}"
    return listed(results) if results.failed else f"always success, {_distinct(results)} different results"


def outcome_parameters(outcome: Outcome | None, counted: CallResults | None) -> dict[str, str | int]:
    """The parameters of a record: of ``outcome``, and of the counting pass where its calls' results are known.

    Without ``outcome`` the cell ran a user's function or program, whose exit status is 0: with another one it failed.
    """
    if outcome is None:
        return {"exit_status": 0}
    results = outcome.results
    return {
        "outcome": summary(results),
        "result_first": _whole(results.values[0][0]),
        "result_last": _whole(results.last),
        "result_distinct": _distinct(results),
        "result_values": listed(results),
        "result_calls": results.observed,
        "result_failed": results.failed,
        **({} if counted is None else {"result_counted": listed(counted)}),
    }


def watched_parameters(watched: Mapping[str, CallResults]) -> dict[str, str | int]:
    """The parameters of a cell that ran a user's function: what its system calls returned, those that failed first."""
    if not watched:
        return {}
    ordered = sorted(watched.items(), key=lambda one: not one[1].failed)
    return {
        "outcome": phrase("; ".join(f"{name} {summary(results)}" for name, results in ordered)),
        "result_calls": sum(results.observed for results in watched.values()),
        "result_failed": sum(results.failed for results in watched.values()),
    }


def always_failing(watched: Mapping[str, CallResults]) -> Sequence[str]:
    """The system calls that never succeed, with what they return: ``ioctl: always ENOTTY``."""
    return [f"{name}: {summary(one)}" for name, one in watched.items() if one.observed == one.failed > 0]


def difference_note(outcome: Outcome | None, counted: CallResults | None) -> tuple[str, ...]:
    """A note where calls of the counting pass ended otherwise than those of the timed one."""
    if outcome is None or counted is None or counted.endings == outcome.results.endings:
        return ()
    return (f"the counted calls ended otherwise than the timed ones: {listed(counted)}",)


def phrase(text: str) -> str:
    """The text as far as a parameter of a record holds it."""
    return cut(text, _LONGEST_PHRASE)


def _whole(value: int) -> str:
    return f"{named(value)} ({value})" if value < 0 else named(value)


def _distinct(results: CallResults) -> int | str:
    return f"more than {MOST_VALUES}" if results.other else len(results.values)


# The interface of a workload: a program in the guest that enters the kernel repeatedly and can be timed.


@dataclass(frozen=True)
class Measurement:
    """Samples per call, the entry they used, and the batches they are made of.

    ``samples`` are in units of the guest's TSC, which are instructions on the exact clock; ``nanoseconds`` are the same
    by the guest's clock. ``disturbed`` batches were discarded and repeated. ``number`` and ``outcome`` are of system
    calls. A ``batch`` has so many calls at most, an ``empty`` one takes so many TSC units; ``ticks`` are each sample's
    batches and TSC units, with nothing subtracted. ``is_uniform`` where one call costs what one of many does.
    ``warming`` calls preceded each batch and are not in it.
    """

    samples: tuple[float, ...]
    nanoseconds: tuple[float, ...]
    entry: str
    calls: int
    batches: int
    disturbed: int
    number: int | None = None
    outcome: Outcome | None = None
    batch: int = 1
    empty: int = 0
    ticks: tuple[tuple[int, int], ...] = ()
    is_uniform: bool = False
    warming: int = 0

    @property
    def scatter(self) -> float:
        """How far samples are apart, in their unit: 0 where all calls cost the same on the exact clock."""
        return max(self.samples) - min(self.samples) if self.samples else 0.0


def together(ones: Sequence[Measurement]) -> Measurement:
    """Samples that were measured one by one, of the same calls. What the calls returned is of the last."""
    return replace(
        ones[-1],
        samples=tuple(sample for one in ones for sample in one.samples),
        nanoseconds=tuple(time for one in ones for time in one.nanoseconds),
        batches=sum(one.batches for one in ones),
        disturbed=sum(one.disturbed for one in ones),
        ticks=tuple(ticks for one in ones for ticks in one.ticks),
    )


@dataclass(frozen=True)
class MarkedSamples:
    """What the clock of ``program`` said in the batches that it marked; each sample is of ``calls`` calls."""

    program: str
    calls: int
    timed: Timed


# The figures of a cell's measurements: its samples, the probe's overhead and the verdict on it.


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
    """Figures of samples that scatter, in the clock's unit; their value is the ``centre`` of the samples.

    ``plain`` samples, without the probe, are taken around and between ``probed``: each of these is compared with the
    mean of its two neighbours, and the overhead is the median of the differences. There is no verdict where the
    baseline's drift exceeds the overhead, or where the interval contains zero. Without ``probed`` these are the figures
    of the baseline itself.
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
