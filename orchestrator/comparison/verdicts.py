# SPDX-License-Identifier: GPL-2.0-only
"""The difference of two numbers of a cell, and the verdict on it.

- Exact counts (calls and loops on the clock ``instructions``): any difference is real.
- Calls that vary on that clock: a real difference lies beyond all samples of both runs, and beyond what the run's cells
  differ by in what the calls cost without their probes.
- Whole systems: a real difference must exceed the difference between boots of the same work (A/A).
- Other scattering figures (the wall clock, programs with timer ticks): the 95 % interval of the difference decides,
  then a test that is corrected for the number of cells. There is no verdict with too much drift, too few samples or an
  interval that neither shows nor excludes a difference; ``repeats`` is then the number of samples for one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from orchestrator.comparison.two_samples import (
    SIGNIFICANCE,
    can_resolve,
    difference_interval,
    holm,
    mann_whitney,
    repeats_to_resolve,
    superiority,
)
from orchestrator.results.contract import PER_RUN, CellRecord
from orchestrator.results.exact import exact, increase
from orchestrator.results.parameters import RESOLVABLE
from orchestrator.results.same_calls import calls_of
from orchestrator.results.statistics import FEWEST_RUNS, Interval, Resolution, median, median_interval

Figure = Literal["value", "overhead"]

FEWEST_SAMPLES = 6
"""No interval of fewer samples covers a median with 95 %: 1 - 2 / 2**5 is 94 % (``median_interval``)."""

LARGEST_UNSHOWN = 0.05
"""The part of the value up to which an interval around 0 may reach to show that nothing changed.

Two runs of a call that takes 389 ns under plain TCG had the interval -384 to +395 ns.
"""
_USUAL_REPEATS = 12
_AA_BOOT = re.compile(r"/again[0-9]+$")


@dataclass(frozen=True)
class Difference:
    """The difference of two numbers in their unit, and its ``interval``, None if unknown.

    ``undecided`` says why there is no verdict, or is empty. ``p`` is the test's, corrected for all compared cells;
    ``superiority`` is the probability that a sample after is larger. Both are None without a test. ``repeats`` is the
    number of samples for a verdict, None if more do not help.
    """

    before: float
    after: float
    interval: Interval | None
    undecided: str = ""
    p: float | None = None
    superiority: float | None = None
    repeats: int | None = None

    @property
    def value(self) -> float:
        return increase(self.before, self.after)

    @property
    def relative(self) -> float | None:
        """The difference divided by the first number; None unless that is positive."""
        return self.value / self.before if self.before > 0 else None

    def exceeds(self, allowed: Fraction | int) -> bool:
        """Whether the second number is decidedly larger by more than ``allowed``."""
        if self.undecided or self.interval is None:
            return False
        if self.interval == (self.value, self.value):
            # Counts by 3 and by 10,000 calls differ by a count by 30,000, which exact() does not find in a float.
            return exact(self.after) - exact(self.before) > allowed
        return exact(self.interval[0]) > allowed


def is_exact(cell: CellRecord) -> bool:
    """Whether the cell's number is a count that is equal in every run: not of whole runs, nor of scattering calls."""
    return cell.clock == "instructions" and cell.metric != PER_RUN and not cell.calls_vary


def exact_difference(before: float, after: float) -> Difference:
    """The difference of two exact counts."""
    difference = increase(before, after)
    return Difference(before, after, (difference, difference))


def difference_to_zero(cell: CellRecord, figure: Figure) -> Difference | None:
    """A cell's figure with the interval of its samples; None without a figure."""
    amount = cell.value if figure == "value" else cell.overhead
    if amount is None or is_exact(cell):
        return None if amount is None else exact_difference(0, amount)
    fewest = FEWEST_SAMPLES if cell.work is None else FEWEST_RUNS
    if len(cell.samples) < fewest:
        return Difference(0, amount, None, f"no verdict: found {len(cell.samples)} samples, {fewest} are needed")
    if figure == "overhead":
        return Difference(0, amount, cell.interval, "" if cell.interval else "no verdict: its scatter is unknown")
    return Difference(0, amount, median_interval(cell.samples))


def work_difference(before: CellRecord, after: CellRecord, noise: Sequence[float | None]) -> Difference:
    """The difference of a whole system's work; ``noise`` has the resolution of each run (``resolution``)."""
    first, second = _values(before, after)
    known = [level for level in noise if level is not None]
    if len(known) < len(noise):
        what = "no verdict: without an A/A boot the smallest significant difference is unknown"
        return Difference(first, second, None, what)
    difference, smallest = second - first, max(known)
    judged = _shown(Difference(first, second, (difference - smallest, difference + smallest)), before.unit)
    doubt = _few_samples(before, after)
    return replace(judged, undecided=doubt, repeats=FEWEST_RUNS) if doubt else judged


def varying_difference(before: CellRecord, after: CellRecord, between: Sequence[float]) -> Difference:
    """The difference of calls that vary, with the widest interval that the samples of both allow.

    ``between`` has for each run by how much the cost of such calls differs from cell to cell (``between_cells``). The
    interval is of all samples, and not of their median: more samples of one guest do not show what differs between
    guests, such as the state of the kernel's slabs.
    """
    first, second = _values(before, after)
    (low, high), (lowest, highest) = (
        (min(cell.samples) - margin, max(cell.samples) + margin)
        for cell, margin in zip((before, after), between, strict=True)
    )
    difference = Difference(first, second, (lowest - high, highest - low))
    doubt = _few_samples(before, after)
    return replace(difference, undecided=doubt, repeats=_USUAL_REPEATS) if doubt else _shown(difference, before.unit)


def between_cells(cell: CellRecord, run: Mapping[str, CellRecord]) -> float:
    """By how much calls that vary cost something else in the run's other cells: in each, its value less its overhead.

    The cells were measured one after the other, in other states of the kernel or in other guests. 0 for exact counts.
    """
    if not cell.calls_vary:
        return 0.0
    same = [record for record in run.values() if calls_of(record) == calls_of(cell)]
    plain = [r.value - r.overhead for r in same if r.value is not None and r.overhead is not None]
    return max(plain) - min(plain) if plain else 0.0


def resolution(cell: CellRecord, run: Mapping[str, CellRecord]) -> float | None:
    """The smallest significant difference of a whole system's work within its run, cells by id; None if unknown.

    It is recorded for a cell with a baseline, and computed for the baseline itself and its A/A boots.
    """
    stored = RESOLVABLE.of(cell)
    if stored is not None:
        return stored
    baseline_id = _AA_BOOT.sub("", cell.id)
    baseline = run.get(baseline_id)
    aa_boots = [record.samples for id_, record in run.items() if _AA_BOOT.sub("", id_) == baseline_id != id_]
    samples = [boot for boot in aa_boots if baseline is not None and len(boot) == len(baseline.samples)]
    if baseline is None or not baseline.samples or not samples:
        return None
    return Resolution.of(baseline.samples, baseline.samples, samples).smallest


def scattered_differences(pairs: Sequence[tuple[CellRecord, CellRecord]]) -> Sequence[Difference]:
    """The differences of scattering cells, with verdicts corrected for their number. Raises HostError without scipy."""
    differences = [_scattered(before, after) for before, after in pairs]
    tested = [index for index, difference in enumerate(differences) if difference.p is not None]
    corrected = dict(
        zip(tested, holm([difference.p for difference in differences if difference.p is not None]), strict=True)
    )
    return [
        _judged(replace(difference, p=corrected.get(index)), pairs[index], len(tested))
        for index, difference in enumerate(differences)
    ]


def overhead_difference(before: CellRecord, after: CellRecord) -> Difference | None:
    """The difference of the overheads; None if a cell has none.

    Its interval is the widest that the intervals of both cells allow.
    """
    if before.overhead is None or after.overhead is None:
        return None
    if is_exact(before) and is_exact(after):
        return exact_difference(before.overhead, after.overhead)
    pair, other_pair = before.interval, after.interval
    if pair is None or other_pair is None:
        return Difference(before.overhead, after.overhead, None, "no verdict: an overhead's scatter is unknown")
    interval = (increase(pair[1], other_pair[0]), increase(pair[0], other_pair[1]))
    # With two samples each, one of two equal overheads lies above the other in one case of six.
    doubt = _few_samples(before, after) or own_doubt(before, after)
    return Difference(before.overhead, after.overhead, interval, doubt)


def own_doubt(before: CellRecord, after: CellRecord) -> str:
    """Why a cell has no verdict in its own run, and so none here; empty if both have one."""
    for cell in (before, after):
        if cell.verdict is not None:
            return next((note for note in cell.notes if note.startswith("no verdict")), "no verdict in its own run")
    return ""


def _scattered(before: CellRecord, after: CellRecord) -> Difference:
    first, second = _values(before, after)
    fewest = min(len(before.samples), len(after.samples))
    if fewest < 2:
        return Difference(first, second, None, repeats=_USUAL_REPEATS)
    interval = difference_interval(before.samples, after.samples)
    repeats = repeats_to_resolve(median(after.samples) - median(before.samples), interval, fewest)
    enough = max(_USUAL_REPEATS, repeats or 2 * fewest)
    p, larger = mann_whitney(before.samples, after.samples), superiority(before.samples, after.samples)
    return Difference(first, second, interval, "", p, larger, enough)


def _judged(difference: Difference, pair: tuple[CellRecord, CellRecord], tested: int) -> Difference:
    """The difference with its verdict."""
    doubt = _few_samples(*pair) or own_doubt(*pair)
    if doubt:
        return replace(difference, undecided=doubt)
    interval = difference.interval
    away = interval is not None and not interval[0] <= 0 <= interval[1]
    if away and (difference.p is None or difference.p > SIGNIFICANCE):
        p = "unknown" if difference.p is None else f"{difference.p:.2g}"
        why = f"no verdict: among {tested} compared cells such a difference may be chance (p = {p} after Holm)"
        # The fewest samples with which one of so many cells can be significant after Holm's correction.
        fewest = next(count for count in range(1, 100) if can_resolve(count, count, SIGNIFICANCE / tested))
        return replace(difference, undecided=why, repeats=max(difference.repeats or 0, fewest))
    shown = _shown(replace(difference, repeats=None), pair[0].unit)
    if not shown.undecided or interval is None or not difference.before:
        return shown
    # An interval's width falls with the root of the number of samples.
    width = (interval[1] - interval[0]) / (2 * LARGEST_UNSHOWN * abs(difference.before))
    enough = math.ceil(min(len(cell.samples) for cell in pair) * width**2)
    return replace(shown, repeats=max(_USUAL_REPEATS, enough))


def _few_samples(before: CellRecord, after: CellRecord) -> str:
    """Why there are too few samples for a verdict; empty if there are enough."""
    counts = [len(cell.samples) for cell in (before, after) if not is_exact(cell)]
    if before.work is not None and after.work is not None:
        few = f"no verdict: the scatter of fewer than {FEWEST_RUNS} runs is unknown"
        return few if min(counts) < FEWEST_RUNS else ""
    if min(counts) >= FEWEST_SAMPLES:
        return ""
    numbers = " and ".join(map(str, counts))
    return f"no verdict: found {numbers} samples; a 95 % interval needs {FEWEST_SAMPLES} of each"


def _shown(difference: Difference, unit: str) -> Difference:
    """The difference, undecided if its interval contains 0 and is wide."""
    if difference.interval is None or not difference.interval[0] <= 0 <= difference.interval[1]:
        return difference
    if max(-difference.interval[0], difference.interval[1]) <= LARGEST_UNSHOWN * abs(difference.before):
        return difference
    percent = f"{100 * LARGEST_UNSHOWN:.0f} %"
    where = shown_interval(difference.interval, unit)
    return replace(
        difference, undecided=f"no verdict: the difference is {where}, which is more than {percent} of the value"
    )


def _values(before: CellRecord, after: CellRecord) -> tuple[float, float]:
    if before.value is None or after.value is None:
        raise ValueError("a cell without a number has no difference")
    return before.value, after.value


def shown_interval(interval: Interval, unit: str) -> str:
    """``between -3 and +5 ns``."""
    low, high = (f"{end:+.0f}" if math.fabs(end) >= 100 or end.is_integer() else f"{end:+.3g}" for end in interval)
    return f"between {low} and {high} {unit}"
