# SPDX-License-Identifier: GPL-2.0-only
"""What a bisection has found: commits, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """What a commit costs: its value, and the half-width of its interval, 0 on the exact clock."""

    value: float
    scatter: float = 0.0


@dataclass(frozen=True)
class Commit:
    """A commit by its hash, with its first line, its author and its date."""

    hash: str
    subject: str
    author: str
    date: str

    @property
    def short(self) -> str:
        """The hash as a person writes it."""
        return self.hash[:12]


@dataclass(frozen=True)
class Tried:
    """A commit that was looked at: what it costs, or why it was skipped."""

    commit: Commit
    measured: Measured | None
    why_skipped: str = ""


@dataclass(frozen=True)
class Found:
    """How a bisection ended: the ``candidates``, of which there is one unless skipped commits hide it, oldest last.

    ``tried`` are the commits in the order in which they were measured, both ends first.
    """

    candidates: Sequence[Commit]
    tried: Sequence[Tried]

    @property
    def skipped(self) -> Sequence[Tried]:
        """Those without a number."""
        return [one for one in self.tried if one.measured is None]
