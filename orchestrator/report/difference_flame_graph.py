# SPDX-License-Identifier: GPL-2.0-only
"""A flame graph of what differs between two profiles: red where a function executes more itself, blue where less.

After Brendan Gregg's differential flame graphs (brendangregg.com/blog/2014-11-09/differential-flame-graphs.html):
widths are those of one profile, colours are of the change. What only the first one has is in no box of the second
one's widths, so there is a heap of boxes for each, at one scale.
"""

from __future__ import annotations

from fractions import Fraction
from operator import attrgetter

from orchestrator.report.flames import Box, Flames, picture
from orchestrator.report.palette import LESS, MORE, SAME
from orchestrator.report.profile_figures import per_call, signed
from orchestrator.results.call_tree import ZERO, CallChange, call_tree, compared_trees
from orchestrator.results.profile import CellProfile

_PALEST = Fraction(1, 5)
"""Of the colour for the smallest change, so that it is seen."""
_REMARK = "red: executes more itself, blue: less, the deeper the colour the more; grey: as much"


def difference_flame_graph(before: CellProfile, after: CellProfile) -> str:
    """The picture as SVG: above as wide as after, below as wide as before. Raises UsageError without stacks."""
    tree = compared_trees(call_tree(before), call_tree(after))
    largest = _largest(tree)

    def heap(side: int, profile: CellProfile, which: str) -> Flames[CallChange]:
        def box(call: CallChange) -> Box:
            return Box(call.name, call.totals[side], _title(call), _colour(call.own_change, largest))

        heading = f"{which}: {profile.cell}, {per_call(tree.totals[side])} instructions per call"
        if side:
            heading += f" ({signed(tree.change)})"
        return Flames(heading, tree, attrgetter("called"), box)

    return picture([heap(1, after, "after"), heap(0, before, "before")], _REMARK)


def _title(call: CallChange) -> str:
    before, after = (per_call(None if one is None else one.total) for one in (call.before, call.after))
    return (
        f"{call.name}: {before} -> {after} instructions per call ({signed(call.change)}), own {signed(call.own_change)}"
    )


def _largest(call: CallChange) -> Fraction:
    return max((abs(call.own_change), *(_largest(one) for one in call.called)), default=ZERO)


def _colour(change: Fraction, largest: Fraction) -> str:
    if not change:
        return _hex(SAME)
    depth = _PALEST + (1 - _PALEST) * abs(change) / largest
    full = MORE if change > 0 else LESS
    return _hex(tuple(round(pale + (deep - pale) * depth) for pale, deep in zip(SAME, full, strict=True)))


def _hex(colour: tuple[int, ...]) -> str:
    return "#" + "".join(f"{part:02x}" for part in colour)
