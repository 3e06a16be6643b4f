# SPDX-License-Identifier: GPL-2.0-only
"""The smallest difference between two whole-system runs that is significant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.results.statistics import median

Interval = tuple[float, float]

FEWEST_RUNS = 3
"""Runs of each: a fourth difference of the same scatter exceeds the largest of three in about one case of twenty."""


@dataclass(frozen=True)
class Resolution:
    """A difference to a baseline, and the largest difference between boots of the same work (A/A).

    ``runs`` is the number of samples, ``overhead`` the difference of the medians, ``smallest`` the difference that it
    must exceed, ``aa_difference`` the largest difference of an A/A boot's median to the baseline's. The last three are
    in the samples' unit, None without a baseline.
    """

    runs: int
    overhead: float | None
    smallest: float | None
    aa_difference: float | None

    @classmethod
    def of(
        cls, samples: Sequence[float], baseline: Sequence[float], repetitions: Sequence[Sequence[float]]
    ) -> Resolution:
        """Compare samples with those of the baseline and of its repetitions, both of which may be missing.

        Each is of the same number of runs, which are compared in order: work that only the first run of a boot does is
        no scatter. ``smallest`` is the largest difference between a run of the baseline and the same run of a
        repetition, or between a run's own difference and the overhead. Raises ValueError without samples, or for
        unequal numbers of them.
        """
        if not baseline:
            return cls(len(samples), None, None, None)
        centre = median(baseline)
        overhead = median(samples) - centre
        if not repetitions:
            return cls(len(samples), overhead, None, None)
        aa_difference = max(abs(median(group) - centre) for group in repetitions)
        between = (abs(one - other) for group in repetitions for one, other in zip(group, baseline, strict=True))
        own = (abs(one - other - overhead) for one, other in zip(samples, baseline, strict=True))
        return cls(len(samples), overhead, max(aa_difference, *between, *own), aa_difference)

    @property
    def interval(self) -> Interval | None:
        """The interval of the difference; None where its scatter is unknown."""
        if self.overhead is None or self.smallest is None:
            return None
        return self.overhead - self.smallest, self.overhead + self.smallest

    def why_undecided(self, unit: str) -> str | None:
        """Why the difference allows no verdict; None where it does."""
        if self.runs < FEWEST_RUNS:
            return f"no verdict: with fewer than {FEWEST_RUNS} runs their scatter is unknown"
        if self.overhead is None:
            return "no verdict: the baseline has no number"
        if self.smallest is None:
            return "no verdict: without an A/A boot of the baseline the smallest significant difference is unknown"
        if abs(self.overhead) <= self.smallest:
            return (
                f"no verdict: the difference of {self.overhead:.0f} {unit} does not exceed the smallest that can be "
                f"resolved, {self.smallest:.0f}"
            )
        return None
