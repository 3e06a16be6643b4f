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
    """A function that calls enter ``entered`` times each, ``times`` in all, and its ``instructions`` a time.

    They include those of what it calls; ``alone`` are its own.
    """

    name: str
    entered: Fraction
    instructions: Fraction
    alone: Fraction
    times: int


def own_functions(profile: CellProfile, proved: str) -> Sequence[OwnFunction]:
    """The functions of a module that calls enter, those by which they enter it first, then the dearest.

    ``proved`` names one of its functions: ``f [module], ...``. A function that calls itself is entered once. Empty for
    a profile without stacks, or where it is not proved how often they were entered.
    """
    module = _MODULE.search(proved)
    if module is None:
        return []
    executed, alone, entered, from_outside = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for stack in profile.stacks:
        *below, last = stack.names.split(";")
        own = dict.fromkeys(name for name in (*below, last) if name.endswith(module[0]))
        for name in own:
            executed[name] += stack.executed
        if last in own:
            alone[last] += stack.executed
            entered[last] += (stack.entered or 0) if last not in below else 0
            from_outside[last] += (stack.entered or 0) if len(own) == 1 and last not in below else 0
    functions = [
        OwnFunction(
            name.removesuffix(module[0]),
            Fraction(times, profile.calls),
            Fraction(executed[name], times),
            Fraction(alone[name], times),
            times,
        )
        for name, times in entered.items()
        if times
    ]
    return sorted(functions, key=lambda function: (not from_outside[function.name + module[0]], -function.instructions))
