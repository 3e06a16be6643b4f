# SPDX-License-Identifier: GPL-2.0-only
"""What ``bisect --format json`` prints (docs/bisecting.md), made from the result of a bisection."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.profile.stored.profile_difference import ProfileDifference
from orchestrator.profile.stored.profiles_json import PrintedDifference
from orchestrator.results.bisection_result import BisectionResult, Tried
from orchestrator.results.commit_heads import Commit
from orchestrator.results.printed_json import Printed


class NamedCommit(Printed):
    """A commit."""

    hash: str
    """Its hash."""
    subject: str
    """The first line of its message."""
    author: str
    """Its author's name."""
    date: str
    """Its date."""

    @classmethod
    def of(cls, commit: Commit) -> NamedCommit:
        return cls(hash=commit.hash, subject=commit.subject, author=commit.author, date=commit.date)


class TriedCommit(Printed):
    """A commit that was measured or skipped."""

    commit: NamedCommit
    """The commit."""
    value: float | None
    """The cell's value; None if the commit was skipped."""
    unit: str | None
    """The value's unit."""
    why_skipped: str | None
    """Why it was skipped, such as a failed build."""

    @classmethod
    def of(cls, tried: Tried) -> TriedCommit:
        return cls(
            commit=NamedCommit.of(tried.commit),
            value=tried.measured and tried.measured.value,
            unit=tried.measured and tried.measured.unit,
            why_skipped=tried.why_skipped or None,
        )


class PrintedBisection(Printed):
    """The first commit at which a cell costs as much as at --bad."""

    candidates: Sequence[NamedCommit]
    """The commit; several, newest first, if commits were skipped."""
    tried: Sequence[TriedCommit]
    """The commits in the order of measurement, both ends first."""
    differences: Sequence[PrintedDifference]
    """What the cell executes differently at the commit, as ``profile A B --format json`` prints it."""

    @classmethod
    def of(cls, found: BisectionResult, differences: Sequence[ProfileDifference]) -> PrintedBisection:
        return cls(
            candidates=[NamedCommit.of(candidate) for candidate in found.candidates],
            tried=[TriedCommit.of(tried) for tried in found.tried],
            differences=[PrintedDifference.of(difference) for difference in differences],
        )
