# SPDX-License-Identifier: GPL-2.0-only
"""How small a difference between two whole-system runs still means something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.results.statistics import median

Interval = tuple[float, float]

FEWEST_RUNS = 3
"""Of each: the largest of three differences is exceeded by a fourth of the same scatter in about one case of twenty."""


@dataclass(frozen=True)
class Resolution:
    """A difference to a baseline beside the largest difference that there is without any reason (A/A).

    ``runs`` is how many samples there are, ``overhead`` the difference of the medians, ``smallest`` what it has to
    exceed, ``again`` by how much the baseline differed from itself when it was measured again; all of these in the
    samples' unit, None without a baseline.
    """

    runs: int
    overhead: float | None
    smallest: float | None
    again: float | None

    @classmethod
    def of(
        cls, samples: Sequence[float], baseline: Sequence[float], repetitions: Sequence[Sequence[float]]
    ) -> Resolution:
        """Compare samples with those of the baseline and of its repetitions; any but the first may be missing.

        Each is of as many runs, in their order: what the first run of every boot has to do once more is no scatter.
        The smallest difference is the largest between a run of the baseline and the same one of a repetition, or by
        which a run's own difference is off the overhead. Raises ValueError for no samples or another number of them.
        """
        if not baseline:
            return cls(len(samples), None, None, None)
        centre = median(baseline)
        overhead = median(samples) - centre
        if not repetitions:
            return cls(len(samples), overhead, None, None)
        again = max(abs(median(group) - centre) for group in repetitions)
        between = (abs(one - other) for group in repetitions for one, other in zip(group, baseline, strict=True))
        own = (abs(one - other - overhead) for one, other in zip(samples, baseline, strict=True))
        return cls(len(samples), overhead, max(again, *between, *own), again)

    @property
    def interval(self) -> Interval | None:
        """Where the difference may lie; None where nothing tells."""
        if self.overhead is None or self.smallest is None:
            return None
        return self.overhead - self.smallest, self.overhead + self.smallest

    def why_undecided(self, unit: str) -> str | None:
        """Why the difference allows no verdict; None where it does."""
        if self.runs < FEWEST_RUNS:
            return f"no verdict: with fewer than {FEWEST_RUNS} runs nothing tells how much they differ anyway"
        if self.overhead is None:
            return "no verdict: the baseline has no number"
        if self.smallest is None:
            return "no verdict: the baseline was not measured again, so nothing tells how small a difference counts"
        if abs(self.overhead) <= self.smallest:
            return (
                f"no verdict: the difference of {self.overhead:.0f} {unit} is not above the smallest that can be told "
                f"from none, {self.smallest:.0f}"
            )
        return None
