# SPDX-License-Identifier: GPL-2.0-only
"""The result of a bisection: the costs of commits, and the commits between which the change is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.results.commit_heads import Commit


@dataclass(frozen=True)
class Measured:
    """The cost at a commit in ``unit``, and the half-width of its interval, 0 on the exact clock."""

    value: float
    scatter: float = 0.0
    unit: str = "instructions"


@dataclass(frozen=True)
class Tried:
    """A commit of a bisection: its cost, or why it was skipped."""

    commit: Commit
    measured: Measured | None
    why_skipped: str = ""


@dataclass(frozen=True)
class BisectionResult:
    """The result of a bisection: one of the ``candidates``, oldest last; several if commits were skipped.

    ``tried`` has the commits in the order of measurement, both ends first.
    """

    candidates: Sequence[Commit]
    tried: Sequence[Tried]

    @property
    def skipped(self) -> Sequence[Tried]:
        return [tried for tried in self.tried if tried.measured is None]
