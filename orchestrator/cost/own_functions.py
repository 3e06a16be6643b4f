# SPDX-License-Identifier: GPL-2.0-only
"""What a module's own functions execute: the cost of one without a probe, whose calls fail where it is not loaded."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.profile.stored.cell_profile import CellProfile

_MODULE = re.compile(r" \[[\w-]+\]")


@dataclass(frozen=True)
class OwnFunction:
    """A function that calls enter from outside of its module ``entered`` times each, and its ``instructions`` a time.

    They include those of what it calls.
    """

    name: str
    entered: Fraction
    instructions: Fraction


def own_functions(profile: CellProfile, proved: str) -> Sequence[OwnFunction]:
    """The functions of a module by which calls enter it; ``proved`` names one of its functions: ``f [module], ...``.

    Empty for a profile without stacks, or where it is not proved how often they were entered.
    """
    module = _MODULE.search(proved)
    if module is None:
        return []
    executed, entered = Counter[str](), Counter[str]()
    for stack in profile.stacks:
        names = stack.names.split(";")
        first = next((place for place, name in enumerate(names) if name.endswith(module[0])), None)
        if first is None:
            continue
        executed[names[first]] += stack.executed
        if len(names) == first + 1:
            entered[names[first]] += stack.entered or 0
    return [
        OwnFunction(name.removesuffix(module[0]), Fraction(times, profile.calls), Fraction(executed[name], times))
        for name, times in entered.items()
        if times
    ]
