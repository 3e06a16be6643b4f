# SPDX-License-Identifier: GPL-2.0-only
"""What a probe adds to calls that vary: calls of equal kinds are compared, and the interval has what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import pairwise, product
from typing import NamedTuple

from orchestrator.benchmarks.calls.samples import (
    Effect,
    Figures,
    Measurement,
    differences_from_neighbours,
    exact_notes,
    figures_of,
    together,
)
from orchestrator.results.statistics import mean, median, median_interval


def varying_figures(plain: Sequence[Measurement], probed: Sequence[Measurement]) -> Figures:
    """Figures in instructions of calls that differ from each other, each timed alone; samples as in ``paired_figures``.

    The overhead is the median of what the probe adds to calls of equal kinds (``added``), with its interval. Where the
    samples' means contradict it, the interval includes theirs: with the probe, the kernel may do its other work more
    often. Where costs do not repeat, the overhead is that of the means. There is no verdict unless the interval is
    above zero.
    """
    before, samples = (
        [sample for measurement in measured for sample in measurement.samples] for measured in (plain, probed)
    )
    by_mean = differences_from_neighbours(before, samples)
    by_kind, grain = added([measurement.costs for measurement in plain], [measurement.costs for measurement in probed])
    overhead, (low, high) = median(by_kind or by_mean), median_interval(by_kind or by_mean)
    low, high = low - grain, high + grain
    lowest, highest = median_interval(by_mean)
    notes = exact_notes(together(probed))
    margin = (highest - lowest) / 2  # of cells that agree, three in a hundred are outside of the interval itself
    if not lowest - margin <= overhead <= highest + margin:
        low, high = min(low, lowest), max(high, highest)
        notes += (
            f"the probe adds {overhead:.10g} instructions to calls of equal kinds, and {lowest:.10g} to {highest:.10g} "
            "to the samples: the interval has both",
        )
    if low <= 0:
        notes += (f"no verdict: the overhead lies between {low:.10g} and {high:.10g} instructions",)
    effect = Effect(overhead, (low, high), "none" if low <= 0 else None, notes)
    return replace(figures_of(probed, samples, mean(samples), effect), plain=mean(before))


class Added(NamedTuple):
    """What a probe adds to a call in each sample, in instructions.

    ``grain`` is what a call more or less in a sample would change it by, of each kind that counts in proportion: what
    every N-th call does is in a sample once more or less often, by where the sample begins.
    """

    by_sample: Sequence[float]
    grain: float


def added(plain: Sequence[Counter[int]], probed: Sequence[Counter[int]]) -> Added:
    """What a probe adds to a call in each ``probed`` sample, which has two ``plain`` neighbours.

    Most calls take the same path, and some do other work of the kernel's besides: they fetch a slab, or queue a
    callback. How many do depends on the kernel's state, and the probe adds the same to each. So it shifts all costs:
    calls are of the same kind where their costs are the same but for that, and kinds count alike with and without the
    probe. A kind that each probed sample has and no plain one is the probe's own, as where every hundredth hit begins
    a page of a buffer; it counts as in a mean. Empty where the shift does not explain half of a sample's calls.
    """
    around = [counts + other_counts for counts, other_counts in pairwise(plain)]
    shifts = [_shift(costs, more) for costs, more in zip(around, probed, strict=True)]
    moved = [
        Counter({cost - shift: calls for cost, calls in more.items()})
        for shift, more in zip(shifts, probed, strict=True)
    ]
    ((usual, _),) = sum(plain, Counter[int]()).most_common(1)
    added_kinds, gone = _recurring(moved, plain), _recurring(plain, moved)
    kinds = sum(plain, Counter[int]()).keys() | added_kinds
    if any(2 * sum(more[cost] for cost in kinds) < more.total() for more in moved):
        return Added([], 0.0)

    def besides(costs: Counter[int], kinds: AbstractSet[int]) -> float:
        return sum((cost - usual) * costs[cost] for cost in kinds) / costs.total()

    by_sample = [
        shift + besides(more, added_kinds) - besides(costs, gone)
        for shift, costs, more in zip(shifts, around, moved, strict=True)
    ]
    fewest = min(more.total() for more in moved)
    return Added(by_sample, sum(abs(cost - usual) for cost in added_kinds | gone) / fewest)


def _recurring(these: Sequence[Counter[int]], other_counts: Sequence[Counter[int]]) -> AbstractSet[int]:
    """Costs that each of these samples has, and none of the others."""
    return set.intersection(*map(set, these)) - sum(other_counts, Counter[int]()).keys()


_COMMON = 16
"""Costs of either side whose differences may be the shift; the most common one is of most calls."""


def _shift(costs: Counter[int], more: Counter[int]) -> int:
    """The number of instructions by which ``more`` is shifted, so that most calls have a cost of the other side's."""
    one_total, other_total = costs.total(), more.total()

    def equal(shift: int) -> int:
        return sum(min(calls * one_total, costs[cost - shift] * other_total) for cost, calls in more.items())

    pairs = product(costs.most_common(_COMMON), more.most_common(_COMMON))
    return max(sorted({shifted - cost for (cost, _), (shifted, _) in pairs}), key=equal)
