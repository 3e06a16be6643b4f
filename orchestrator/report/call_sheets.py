# SPDX-License-Identifier: GPL-2.0-only
"""Trees of calls with their inclusive cost, and what differs between two, as tables: a row for each call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from orchestrator.report.grid import Grid, Row
from orchestrator.report.profile_figures import mark, others, per_call, share, signed
from orchestrator.report.profile_sheets import difference_title
from orchestrator.report.sheet import Sheet
from orchestrator.results.call_tree import ZERO, CallChange, CallCost
from orchestrator.results.profile_difference import ProfileDifference


@dataclass(frozen=True)
class Cut:
    """What of a tree is printed: calls up to ``depth`` below the program, with ``percent`` of the whole or more."""

    depth: int
    percent: float

    def least(self, whole: Fraction) -> Fraction:
        """What a call has that is printed."""
        return Fraction(self.percent) / 100 * abs(whole)

    def sentence(self, whole: str) -> str:
        """What is left out."""
        return f"Others: less than {self.percent:g} % of {whole} each. Calls more than {self.depth} deep are left out."


def tree_sheet(tree: CallCost, cut: Cut) -> Sheet:
    """The calls of a profile; of each caller's the largest comes first."""
    return Sheet(
        title=tree.name,
        facts=["instructions per call: of a function with all that it calls, and its own"],
        grid=Grid(["with calls", "own", "share"], [list(_costs(tree, tree, cut, 0))], together=3),
        sentences=[cut.sentence("all instructions")],
        footnotes=[],
        proofs=[],
    )


def _costs(caller: CallCost, tree: CallCost, cut: Cut, depth: int) -> Iterator[Row]:
    shown, rest = _parted(caller.called, [abs(one.total) for one in caller.called], cut.least(tree.total))
    for one in sorted(shown, key=lambda one: (-one.total, one.name)):
        yield _cost(one, tree, depth)
        if depth < cut.depth:
            yield from _costs(one, tree, cut, depth + 1)
    if len(rest) == 1:
        yield _cost(rest[0], tree, depth)
    elif rest:
        total = sum((one.total for one in rest), start=ZERO)
        yield Row(others(len(rest)), [per_call(total), "", share(total, tree.total)], depth=depth)


def _cost(call: CallCost, tree: CallCost, depth: int) -> Row:
    return Row(call.name, [per_call(call.total), per_call(call.own), share(call.total, tree.total)], depth=depth)


def tree_difference_sheet(difference: ProfileDifference, tree: CallChange, cut: Cut) -> Sheet:
    """The calls that differ; of each caller's the largest change comes first."""
    before, after = tree.totals
    rows = list(_changes(tree, tree, cut, 0))
    sums = Row("all", [per_call(before), per_call(after), signed(tree.change), "", ""], "bold")
    what = "instructions per call: of a function with all that it calls; own: the change of its own"
    return Sheet(
        title=difference_title(difference),
        facts=[what, *difference.notes],
        grid=Grid(["before", "after", "change", "own", ""], [block for block in (rows, [sums]) if block], together=5),
        sentences=[cut.sentence("all changes")],
        footnotes=[],
        proofs=[],
    )


def _changes(caller: CallChange, tree: CallChange, cut: Cut, depth: int) -> Iterator[Row]:
    shown, rest = _parted(caller.called, [one.moved for one in caller.called], cut.least(tree.moved))
    for one in sorted(shown, key=lambda one: (-abs(one.change), -one.moved, one.name)):
        yield _change(one, depth)
        if depth < cut.depth:
            yield from _changes(one, tree, cut, depth + 1)
    if len(rest) == 1:
        yield _change(rest[0], depth)
    elif rest:
        before, after = (sum((one.totals[side] for one in rest), start=ZERO) for side in (0, 1))
        figures = [per_call(before), per_call(after), signed(after - before), "", ""]
        yield Row(others(len(rest)), figures, depth=depth)


def _change(call: CallChange, depth: int) -> Row:
    before, after = (None if side is None else side.total for side in (call.before, call.after))
    figures = [per_call(before), per_call(after), signed(call.change), signed(call.own_change)]
    return Row(call.name, [*figures, mark(call.before, call.after)], depth=depth)


_Call = TypeVar("_Call", CallCost, CallChange)


def _parted(calls: Sequence[_Call], weights: Sequence[Fraction], least: Fraction) -> tuple[list[_Call], list[_Call]]:
    """The calls of at least this weight, and the rest; what weighs nothing is of the rest."""
    shown: list[_Call] = []
    rest: list[_Call] = []
    for one, weight in zip(calls, weights, strict=True):
        (shown if weight and weight >= least else rest).append(one)
    return shown, rest
