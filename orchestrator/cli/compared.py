# SPDX-License-Identifier: GPL-2.0-only
"""The stored runs and cells that commands compare, by their names on the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from orchestrator.cli.options import opened_store
from orchestrator.comparison.comparison import (
    CellPair,
    ComparedRuns,
    compare,
    differing_origin,
    notes,
    pairs_by_id,
    pairs_by_kernel,
)
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.source import stored_budgets
from orchestrator.paths import lab_dir
from orchestrator.plain_text import shown
from orchestrator.program import PROGRAM
from orchestrator.results.budgets import CellFilter, FilterError, cells_named, names_of
from orchestrator.results.contract import CellRecord
from orchestrator.results.origin import Origin, origin_of
from orchestrator.results.runs import Run, UnknownRun, find_run
from orchestrator.results.store import DEFAULT
from orchestrator.results.stored_profile import CellProfile, ProfileDifference, difference, load_profile


@dataclass(frozen=True)
class NamedCells:
    """A run that was named, and the cells of it; None where it was named alone."""

    run: Run
    cells: Sequence[CellRecord] | None


def named(name: str) -> NamedCells:
    """What ``RUN`` or ``RUN:CELL`` names; a directory with a colon in its name is a run. Raises UsageError."""
    run, colon, cell = name.rpartition(":")
    if not colon or Path(name).is_dir():
        return NamedCells(_run(name), None)
    if not run:
        raise UsageError(f"'{name}' names no run", hint="a cell is named RUN:CELL, such as latest:kprobe")
    return cells_of_run(run, cell)


def _run(name: str) -> Run:
    try:
        return find_run(name, lab_dir())
    except UnknownRun as error:
        if error.guess is not None:
            raise  # a misspelt run, not a cell
        hint = f"{error.hint or ''} A cell is named RUN:CELL: latest:{name}".strip()
        raise UsageError(error.what, where=error.where, detail=error.detail, hint=hint) from None


def cells_of_run(run: str, cell: str) -> NamedCells:
    """The cells of a run that ``cell``, an id or parts of it, names. Raises UsageError."""
    found = _run(run)
    return NamedCells(found, cells_named(found.record, cell))


_SHOWN = 10
_NAME_CELLS = f"name one cell of each: {PROGRAM} compare RUN:CELL RUN:CELL"
_SET_A_BASELINE = f"name both: {PROGRAM} compare A B; or once: {PROGRAM} compare --set-baseline default RUN"


def compared(names: Sequence[str], only: Sequence[str]) -> ComparedRuns:
    """Two runs, or cells of them: ``RUN`` or ``RUN:CELL`` each; one alone is compared with the run before it.

    Raises UsageError where there is nothing to compare.
    """
    first = named(names[0])  # of two wrong names the first one is told
    before, after = (first, named(names[1])) if len(names) > 1 else (NamedCells(run_before(first.run), None), first)
    found = _compared(before.run, after.run, _pairs(before, after), only)
    run = after.run.record.run
    pairs = [(one.pair.before, one.pair.after) for one in found.comparison.cells]
    if before.run.record.run == run and all(one and other and one.id == other.id for one, other in pairs):
        print(f"note: both sides are run {run}, so that nothing can differ", file=sys.stderr)
    return found


def compared_kernels(run: Run, kernels: tuple[str, str], only: Sequence[str]) -> ComparedRuns:
    """The cells of a run that differ in the kernel only. Raises UsageError for a kernel that it has no cell of."""
    if kernels[0] == kernels[1]:
        raise UsageError(f"{kernels[0]} is named twice", where="--kernels", hint="name two different kernels")
    known = dict.fromkeys(cell.kernel for cell in run.record.cells)
    for kernel in kernels:
        if kernel not in known:
            what = f"run {run.record.run} has no cell of kernel '{kernel}'"
            raise UsageError(what, where="--kernels", hint=f"it has: {', '.join(known)}")
    return _compared(run, run, pairs_by_kernel(run.record.cells, *kernels), only)


def compared_runs(before: Run, after: Run) -> ComparedRuns:
    """The cells of one id of two runs. Raises UsageError where there is nothing to compare."""
    return _compared(before, after, pairs_by_id(before.record.cells, after.record.cells), [])


def run_before(run: Run) -> Run:
    """What a run is compared with where nothing else is named.

    That is the baseline ``default`` if its run is of the same experiment, or else the newest complete run of that
    experiment which began earlier, or else ``default`` all the same. Raises UsageError where there is none.
    """
    wanted: list[str] = []
    with opened_store() as store:
        if store is not None:
            default = store.baselines().get(DEFAULT)
            known = any(entry.id == run.record.run for entry in store.runs())
            previous = store.previous(run.record.run) if known else None
            wanted = [] if previous is None else [previous.id]
            if default is not None and default.run != run.record.run:
                is_same = store.entry(default.run).experiment == run.record.experiment
                wanted.insert(0 if is_same else len(wanted), default.run)
    if not wanted:
        what = f"there is no complete run of experiment '{run.record.experiment}' before {run.record.run}"
        raise UsageError(what, hint=_SET_A_BASELINE)
    return find_run(wanted[0], lab_dir())


def _pairs(before: NamedCells, after: NamedCells) -> Sequence[CellPair]:
    """One cell with one other, whatever they are called; otherwise cells of one id, of those that were named."""
    if before.cells is not None and after.cells is not None and len(before.cells) == len(after.cells) == 1:
        return [CellPair(before.cells[0], after.cells[0])]
    return pairs_by_id(_meant(before, after.cells), _meant(after, before.cells))


def _meant(side: NamedCells, others: Sequence[CellRecord] | None) -> Sequence[CellRecord]:
    if side.cells is not None:
        return side.cells
    wanted = None if others is None else {cell.id for cell in others}
    return [cell for cell in side.run.record.cells if wanted is None or cell.id in wanted]


def _compared(before: Run, after: Run, pairs: Sequence[CellPair], only: Sequence[str]) -> ComparedRuns:
    selected = _selected(pairs, only)
    comparison = compare(selected, stored_budgets(after.directory), before.record.cells, after.record.cells)
    if comparison.is_empty:
        refused = [f"{pair.title}: {why}" for pair, why in comparison.not_compared]
        refused += [f"{one.pair.title}: {one.reason}" for one in comparison.cells if one.has_no_number]
        raise _nothing(before, after, selected, refused)
    same = before.record.run == after.record.run
    origin = [] if same else differing_origin(_origin(before), _origin(after), comparison)
    return ComparedRuns(before, after, comparison, origin)


def _selected(pairs: Sequence[CellPair], only: Sequence[str]) -> Sequence[CellPair]:
    """The pairs of which a filter matches a cell. Raises UsageError for one that is none, or matches nothing."""
    if not only:
        return pairs
    wanted: set[int] = set()  # places, since pairs are compared by all that is in their records
    for text in only:
        try:
            cells = CellFilter.of(text)
        except FilterError as error:
            raise UsageError(str(error), where=f"--only {text!r}", hint=error.hint) from None
        found = {
            place
            for place, pair in enumerate(pairs)
            if any(cell is not None and cells.matches(names_of(cell)) for cell in (pair.before, pair.after))
        }
        if not found:
            hint = cells.remark or "choose among these cells, by parts of their names"
            cells_there = ["cells:", *shown([pair.title for pair in pairs], _SHOWN)]
            raise UsageError("no cell matches", where=f"--only {text!r}", detail=cells_there, hint=hint)
        wanted |= found
    return [pair for place, pair in enumerate(pairs) if place in wanted]


def _nothing(before: Run, after: Run, pairs: Sequence[CellPair], refused: Sequence[str]) -> UsageError:
    """Why no two cells are compared: each refused for a reason, or none of those that were named has a counterpart."""
    for run in (before, after):
        if not run.record.cells:
            what = f"no cell of run {run.record.run} has an outcome yet"
            return UsageError(what, hint=f"go on with it: {PROGRAM} run CONFIG --resume")
    sides = list(dict.fromkeys(run.record.run for run in (before, after)))
    what = f"{' and '.join(sides)} {'has' if len(sides) == 1 else 'have'} nothing that can be compared"
    if refused:
        return UsageError(what, detail=refused[:_SHOWN], hint=_NAME_CELLS)
    detail = []
    for run, cells in ((before, [pair.before for pair in pairs]), (after, [pair.after for pair in pairs])):
        detail += shown([f"{run.record.run}:{cell.id}" for cell in cells if cell is not None], _SHOWN // 2)
    return UsageError(f"{what}: no two cells have one id", detail=detail, hint=_NAME_CELLS)


def _origin(run: Run) -> Origin:
    facts = None
    with opened_store() as store:
        if store is not None and any(entry.id == run.record.run for entry in store.runs()):
            facts = store.provenance(run.record.run)
    return origin_of(run.directory, facts)


_SHOWN_PAIRS = 20
shown_ids = partial(shown, most=_SHOWN_PAIRS, rest="...")
"""The first of many ids, as an error lists them."""


@dataclass(frozen=True)
class RunCell:
    """A cell of a run."""

    run: Run
    cell: CellRecord

    def profile(self) -> CellProfile:
        """Its profile. Raises UsageError where it has none, LabError where it has failed, or its file is another."""
        if self.cell.status != "ok":
            what = f"cell {self.cell.id} of run {self.run.record.run} is {self.cell.status}"
            raise LabError(what, detail=(self.cell.reason or "").splitlines()[:_SHOWN_PAIRS])
        return load_profile(self.run.directory, self.cell)


def difference_of(before: RunCell, after: RunCell) -> ProfileDifference:
    """What differs between two cells, with what is to be said of comparing them. Raises as ``RunCell.profile`` does."""
    one, other = before.profile(), after.profile()
    said = list(notes((before.cell, one), (after.cell, other)))
    if before.cell.id == after.cell.id and before.run.record.run != after.run.record.run:
        said.insert(0, f"runs {before.run.record.run} -> {after.run.record.run}")
    return replace(difference(one, other), notes=said)


def stored_pairs(before: str, after: str) -> Sequence[tuple[RunCell, RunCell]]:
    """Two cells that ``RUN:CELL`` names; or, of two runs, the cells of one id that both have a profile of.

    The other cells of two runs are named on stderr. Raises UsageError where there are none to compare.
    """
    one, other = (named(name) for name in (before, after))
    if one.cells is not None and other.cells is not None:
        return [(_only(one.run, one.cells, before), _only(other.run, other.cells, after))]
    if one.cells is not None or other.cells is not None:
        what, whole = (before, after) if one.cells is not None else (after, before)
        raise UsageError(
            f"'{what}' names a cell and '{whole}' a run", hint=f"name a cell of both: {whole}:{what.rpartition(':')[2]}"
        )
    first, second = ({cell.id: cell for cell in side.run.record.cells if cell.profile} for side in (one, other))
    pairs = [(RunCell(one.run, first[cell]), RunCell(other.run, second[cell])) for cell in first if cell in second]
    if not pairs:
        raise _nothing_in_common((before, after), (list(first), list(second)))
    every_cell = dict.fromkeys(cell.id for side in (one, other) for cell in side.run.record.cells)
    left_out = [cell for cell in every_cell if not (cell in first and cell in second)]
    if left_out:
        print(f"not compared, without a profile in both runs: {', '.join(shown_ids(left_out))}", file=sys.stderr)
    return pairs


def _only(run: Run, cells: Sequence[CellRecord], name: str) -> RunCell:
    if len(cells) > 1:
        hint = f"give more parts of the id: {name.rpartition(':')[0]}:{cells[0].id}"
        raise UsageError(f"'{name}' names {len(cells)} cells", detail=shown_ids([one.id for one in cells]), hint=hint)
    return RunCell(run, cells[0])


def _nothing_in_common(names: Sequence[str], profiled: Sequence[Sequence[str]]) -> UsageError:
    without = [name for name, cells in zip(names, profiled, strict=True) if not cells]
    if without:
        hint = f"measure with profiles: {PROGRAM} run CONFIG --profile symbols"
        return UsageError(f"no cell of {' and of '.join(dict.fromkeys(without))} has a profile", hint=hint)
    lines = [
        f"{name}:{cell}" for name, cells in zip(names, profiled, strict=True) for cell in cells[: _SHOWN_PAIRS // 2]
    ]
    what = f"no cell of {names[0]} with a profile has the id of one of {names[1]}"
    return UsageError(what, detail=["cells with profiles:", *lines], hint="name a cell of each: RUN:CELL RUN:CELL")
