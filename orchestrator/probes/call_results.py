# SPDX-License-Identifier: GPL-2.0-only
"""What system calls returned, as far as it was observed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

MOST_VALUES = 8
"""Different values that are kept, as by ``images/guest/results.h``."""


@dataclass(frozen=True)
class CallResults:
    """What ``observed`` calls returned; ``failed`` of them an error.

    A value from -4095 to -1 is an error as the kernel returns it; any other is not negative. ``values`` are the first
    different ones with the number of calls that returned each, in the order of their first calls; ``other`` calls
    returned further ones. ``before_failure`` calls were observed before the first that failed. ``last`` is the last
    value, and has no meaning without calls.
    """

    observed: int
    failed: int
    before_failure: int
    values: tuple[tuple[int, int], ...]
    other: int
    last: int

    @property
    def endings(self) -> frozenset[int]:
        """The errors among the values, as they were returned, and 0 for every success."""
        return frozenset(min(value, 0) for value, _ in self.values)

    @property
    def stopped_succeeding(self) -> bool:
        """Whether calls succeeded at first, and all failed from one of them on."""
        return 0 < self.before_failure == self.observed - self.failed < self.observed

    def followed_by(self, later: CallResults) -> CallResults:
        """The results of these calls and of later ones."""
        counts = Counter(dict(self.values))
        counts.update(dict(later.values))
        values = tuple(counts.items())
        return CallResults(
            observed=self.observed + later.observed,
            failed=self.failed + later.failed,
            before_failure=self.before_failure + (0 if self.failed else later.before_failure),
            values=values[:MOST_VALUES],
            other=self.other + later.other + sum(calls for _, calls in values[MOST_VALUES:]),
            last=later.last if later.observed else self.last,
        )
