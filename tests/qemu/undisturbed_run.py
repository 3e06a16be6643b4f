# SPDX-License-Identifier: GPL-2.0-only
"""A run that nothing happens to, for the tests in which something does: the same is to come out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from killed_run import KilledLab

from orchestrator.results.contract import CellRecord

EXPERIMENT = Path(__file__).parent / "experiments" / "killed.yaml"
RUN = ("run", EXPERIMENT, "--jobs", "2")
CELLS = 7
_MADE = re.compile(r"obtain (.*) \([0-9.]+ s, made\)$")

Values = Mapping[str, tuple[float | None, ...]]


def values(cells: Mapping[str, CellRecord]) -> Values:
    """The exact values of cells that have some: the samples, and the overhead."""
    return {name: (*cell.samples, cell.overhead) for name, cell in cells.items() if cell.status == "ok"}


def are_equal(some: Values, undisturbed: Values) -> bool:
    """Whether cells have the undisturbed values; one whose baseline has failed has no overhead."""
    return all(found in (undisturbed[name], (*undisturbed[name][:-1], None)) for name, found in some.items())


def made(lines: Sequence[str]) -> Counter[str]:
    """How often which artifact was made, by the progress that runs have printed."""
    return Counter(match[1] for line in lines if (match := _MADE.search(line)) is not None)


class Undisturbed:
    """A run that nothing happens to, from a cold cache: what it has measured, and the lines of its progress."""

    def __init__(self, lab: KilledLab) -> None:
        with lab.running(*RUN) as command:
            assert command.end() == 0, command.lines
        self.values = values(lab.cells(lab.runs()[0]))
        self.lines = len(command.lines)
        self.made = made(command.lines)
        assert len(self.values) == CELLS
        assert lab.litter() == []
