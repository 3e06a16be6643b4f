# SPDX-License-Identifier: GPL-2.0-only
"""A comparison with what explains it: the symbols that changed, what the runs were made with, and what to run next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import LabError
from orchestrator.program import command
from orchestrator.results.comparison import CellChange, Comparison
from orchestrator.results.origin import Origin, OriginDifference, host_differences, origin_differences
from orchestrator.results.profile import load_profile
from orchestrator.results.profile_difference import ProfileDifference, difference
from orchestrator.results.runs import Run

MOST_REPEATS = 100
"""The most samples that a cell may have: ``benchmark.repeats``."""

_NAMED_CELLS = 5
_EXPERIMENT_FILE = "experiment.yaml"


@dataclass(frozen=True)
class ComparedRuns:
    """Two runs, or one run twice for cells of its own, with their comparison.

    ``origin`` is what they were not made with alike. ``again`` are the words, behind the program's name, of a command
    that measures both again; empty where that is the experiment of ``after``.
    """

    before: Run
    after: Run
    comparison: Comparison
    origin: Sequence[OriginDifference] = ()
    again: Sequence[str] = ()

    def symbols(self, changes: Iterable[CellChange]) -> Mapping[str, ProfileDifference]:
        """What differs by symbol of those changes whose cells both have a profile, by the titles of their pairs."""
        found = {one.pair.title: self._symbols(one) for one in changes}
        return {title: one for title, one in found.items() if one is not None and one.symbols}

    def _symbols(self, change: CellChange) -> ProfileDifference | None:
        before, after = change.pair.before, change.pair.after
        if before is None or after is None or before.profile is None or after.profile is None:
            return None
        if change.value is None or not change.value.value:
            return None
        try:
            return difference(load_profile(self.before.directory, before), load_profile(self.after.directory, after))
        except LabError:  # the file is gone or another: the comparison itself does not depend on it
            return None


def differing_origin(before: Origin, after: Origin, comparison: Comparison) -> Sequence[OriginDifference]:
    """What two runs were not made with alike; of the hosts only where times were compared."""
    pairs = [(one.pair.before, one.pair.after) for one in comparison.cells]
    cells = [(one.id, other.id) for one, other in pairs if one is not None and other is not None]
    found = list(origin_differences(before, after, cells))
    if any(one.pair.first.clock == "wall" for one in comparison.cells):
        found += host_differences(before, after)
    return found


def next_run(compared: ComparedRuns) -> str | None:
    """A command that measures the undecided cells again, with as many samples as would decide; None without any."""
    undecided = [
        (one.pair.first, one.value.repeats)
        for one in compared.comparison.cells
        if one.change == "undecided" and one.value is not None and one.value.repeats is not None
    ]
    wanted = [(cell, repeats) for cell, repeats in undecided if repeats <= MOST_REPEATS]
    if not wanted:
        return None
    repeats: dict[str | None, int] = {}
    for cell, count in wanted:
        repeats[cell.table] = max(count, repeats.get(cell.table, 0))
    words = [*(compared.again or ("run", str(compared.after.directory / _EXPERIMENT_FILE)))]
    if len(wanted) <= _NAMED_CELLS:
        # A comma in an id would part the filter.
        words += [word for cell, _ in wanted for word in ("--only", f"id={cell.id.replace(',', '?')}")]
    for table, count in repeats.items():
        key = "benchmark.repeats" if table is None else f"tables.{table}.benchmark.repeats"
        words += ["--set", f"{key}={count}"]
    return command(*words)


def unresolvable(changes: Iterable[CellChange]) -> Sequence[CellChange]:
    """The undecided cells whose difference is too small for their scatter, however often they are measured."""
    return [
        one
        for one in changes
        if one.change == "undecided" and one.value is not None and (one.value.repeats or 0) > MOST_REPEATS
    ]
