# SPDX-License-Identifier: GPL-2.0-only
"""The tree of calls of a stored profile: what each function costs with those that it calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.errors import LabError
from orchestrator.profile.stored.cell_profile import CellProfile, FoldedStack, known_sum

DEEPEST = 256
"""The most names of a stack; the plugin follows 128 calls."""


@dataclass(frozen=True)
class CallCost:
    """A function in the tree of calls: instructions per call, its ``own`` and the ``total`` with its callees.

    The callees are in the order of their names. ``entered`` is how often all calls entered it; None if not proved.
    """

    name: str
    own: Fraction
    total: Fraction
    called: Sequence[CallCost]
    entered: int | None = None


def call_tree(profile: CellProfile) -> CallCost:
    """The tree of calls of a profile: a root named after the cell, then the program.

    Raises UsageError for a profile without stacks, LabError for a stack that is too deep.
    """
    stacks = [(stack.names.split(";"), stack) for stack in profile.known_stacks()]
    longest = max(len(names) for names, _ in stacks)
    if longest > DEEPEST:
        raise LabError(f"a stack of cell {profile.cell} has {longest} calls, more than the possible {DEEPEST}")

    def cost(name: str, below: Sequence[tuple[Sequence[str], FoldedStack]], depth: int) -> CallCost:
        called: dict[str, list[tuple[Sequence[str], FoldedStack]]] = defaultdict(list)
        for names, stack in below:
            if len(names) > depth:
                called[names[depth]].append((names, stack))
        costs = [cost(callee, called[callee], depth + 1) for callee in sorted(called)]
        here = [stack for names, stack in below if len(names) == depth]
        own = Fraction(sum(folded_stack.executed for folded_stack in here), profile.calls)
        total = sum((call_cost.total for call_cost in costs), start=own)
        return CallCost(name, own, total, costs, known_sum(folded_stack.entered for folded_stack in here))

    return cost(profile.cell, stacks, 0)
