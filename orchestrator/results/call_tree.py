# SPDX-License-Identifier: GPL-2.0-only
"""A profile's stacks as a tree of calls with their inclusive cost, and what differs between two such trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from orchestrator.errors import LabError, UsageError
from orchestrator.program import PROGRAM
from orchestrator.results.clones import paired
from orchestrator.results.profile import CellProfile

DEEPEST = 256
"""Names of a stack; the plugin follows 128 calls."""

ZERO = Fraction(0)


@dataclass(frozen=True)
class CallCost:
    """A function as it was called from another one: instructions per call, its own and all with what it called.

    What it called is in the order of its names.
    """

    name: str
    own: Fraction
    total: Fraction
    called: Sequence[CallCost]


@dataclass(frozen=True)
class CallChange:
    """The same call in two profiles; None where one lacks it. What it called is in the order of its names.

    ``moved`` is the sum of what it and all that it called changed by, whether more or less.
    """

    name: str
    before: CallCost | None
    after: CallCost | None
    called: Sequence[CallChange]
    moved: Fraction

    @property
    def totals(self) -> tuple[Fraction, Fraction]:
        """Instructions per call with what it called, before and after."""
        before, after = self.before, self.after
        return ZERO if before is None else before.total, ZERO if after is None else after.total

    @property
    def change(self) -> Fraction:
        """What it executes more, with what it called."""
        return self.totals[1] - self.totals[0]

    @property
    def own_change(self) -> Fraction:
        """What it executes more itself."""
        return own_change(self.before, self.after)


@dataclass
class _Node:
    own: int = 0
    called: dict[str, _Node] = field(default_factory=dict)

    def cost(self, name: str, calls: int) -> CallCost:
        called = [one.cost(other, calls) for other, one in sorted(self.called.items())]
        own = Fraction(self.own, calls)
        return CallCost(name, own, sum((one.total for one in called), start=own), called)


def call_tree(profile: CellProfile) -> CallCost:
    """The tree of a profile with stacks; what is called first is the program, below a root named after the cell.

    Raises UsageError for a profile without stacks, LabError where one is too deep.
    """
    check_stacks(profile)
    root = _Node()
    for folded, count in profile.stacks:
        names = folded.split(";")
        if len(names) > DEEPEST:
            raise LabError(
                f"a stack of cell {profile.cell} has {len(names)} calls, more than the {DEEPEST} there can be"
            )
        node = root
        for name in names:
            node = node.called.setdefault(name, _Node())
        node.own += count
    return root.cost(profile.cell, profile.calls)


def check_stacks(profile: CellProfile) -> None:
    """Raise UsageError for a profile without stacks."""
    if not profile.stacks:
        hint = f"measure with them: {PROGRAM} run CONFIG --profile stacks"
        raise UsageError(f"the profile of cell {profile.cell} has no stacks", hint=hint)


def compared_trees(before: CallCost, after: CallCost) -> CallChange:
    """Two trees as one; calls of one name from one caller are the same call, clones of a compiler's too."""
    return _compared(after.name, before, after)


def _compared(name: str, before: CallCost | None, after: CallCost | None) -> CallChange:
    first = {} if before is None else {one.name: one for one in before.called}
    second = {} if after is None else {one.name: one for one in after.called}
    called = [
        _compared(
            other or one or "",
            None if one is None else first[one],
            None if other is None else second[other],
        )
        for one, other in paired(first, second)
    ]
    moved = sum((one.moved for one in called), start=abs(own_change(before, after)))
    return CallChange(name, before, after, sorted(called, key=lambda one: one.name), moved)


def own_change(before: CallCost | None, after: CallCost | None) -> Fraction:
    """What a call executes more in the second profile, without what it calls."""
    return (ZERO if after is None else after.own) - (ZERO if before is None else before.own)
