# SPDX-License-Identifier: GPL-2.0-only
"""Find the stored runs and cells that a user names, and compare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.artifacts.git_tree import is_revision
from orchestrator.comparison.comparison import (
    CellPair,
    ComparedRuns,
    compare,
    differing_provenance,
    pairs_by_id,
    pairs_by_kernel,
)
from orchestrator.errors import UsageError
from orchestrator.experiment.budgets_in_files import stored_budgets
from orchestrator.paths import lab_dir
from orchestrator.plain_text import shown
from orchestrator.program import PROGRAM
from orchestrator.results.budgets import Budgets
from orchestrator.results.cell_filters import CellFilter, FilterError, cells_named, names_of
from orchestrator.results.contract import CellRecord
from orchestrator.results.recorded_provenance import RecordedProvenance, provenance_of
from orchestrator.results.runs import Run, UnknownRun, find_run, opened_store, stored_run
from orchestrator.results.store import DEFAULT


@dataclass(frozen=True)
class NamedCells:
    """A run that the user named, and its named cells, or None for all."""

    run: Run
    cells: Sequence[CellRecord] | None


Find = Callable[[str, Path], Run]
"""How a run is found by its name: ``find_run``, or ``stored_run`` where a name must be no directory."""


def find_named(name: str, find: Find = find_run) -> NamedCells:
    """The run and cells of ``RUN`` or ``RUN:CELL``; a directory's name may have a colon. Raises UsageError."""
    run, colon, cell = name.rpartition(":")
    if not colon or (find is find_run and Path(name).is_dir()):
        return NamedCells(_run(name, find), None)
    if not run:
        raise UsageError(f"'{name}' has no run before the colon", hint="name a cell RUN:CELL, such as latest:kprobe")
    return cells_of_run(run, cell, find)


def _run(name: str, find: Find) -> Run:
    try:
        return find(name, lab_dir())
    except UnknownRun as error:
        if error.guess is not None:
            raise  # a misspelt run, not a cell
        hint = f"{error.hint or ''} Name a cell RUN:CELL: latest:{name}".strip()
        raise UsageError(error.what, where=error.where, detail=error.detail, hint=hint) from None


def cells_of_run(run: str, cell: str, find: Find = find_run) -> NamedCells:
    """The cells of a run with this id, or with these parts in their ids. Raises UsageError."""
    chosen = _run(run, find)
    return NamedCells(chosen, cells_named(chosen.record, cell))


_SHOWN = 10
_NAME_CELLS = f"name one cell of each: {PROGRAM} compare RUN:CELL RUN:CELL"
_SET_A_BASELINE = f"name both: {PROGRAM} compare A B; or once: {PROGRAM} compare --set-baseline default RUN"


def load_comparison(names: Sequence[str], only: Sequence[str], find: Find = find_run) -> ComparedRuns:
    """Compare two stored runs or cells, ``RUN`` or ``RUN:CELL`` each, or one with the run before it.

    Raises UsageError if nothing can be compared.
    """
    if any("@" in name and ":" not in name and is_revision(name) for name in names):  # a cell's id may have a @
        hint = f"{PROGRAM} compare --config CONFIG TREE@A TREE@B"
        raise UsageError("comparing commits needs an experiment to measure", hint=hint)
    first = find_named(names[0], find)
    second = find_named(names[1], find) if len(names) > 1 else None
    before, after = (NamedCells(run_before(first.run), None), first) if second is None else (first, second)
    return _compared(before.run, after.run, _pairs(before, after), only)


def compared_kernels(run: Run, kernels: tuple[str, str], only: Sequence[str]) -> ComparedRuns:
    """Compare the cells of a run that differ in the kernel only. Raises UsageError for a kernel without a cell."""
    if kernels[0] == kernels[1]:
        raise UsageError(f"{kernels[0]} is named twice", where="--kernels", hint="name two different kernels")
    known = dict.fromkeys(cell.kernel for cell in run.record.cells)
    for kernel in kernels:
        if kernel not in known:
            what = f"run {run.record.run} has no cell of kernel '{kernel}'"
            raise UsageError(what, where="--kernels", hint=f"it has: {', '.join(known)}")
    return _compared(run, run, pairs_by_kernel(run.record.cells, *kernels), only)


def compared_runs(before: Run, after: Run, budgets: Budgets | None = None) -> ComparedRuns:
    """Compare the cells of equal ids of two runs, by default with the budgets that ``after`` was measured with.

    Raises UsageError if nothing can be compared.
    """
    return _compared(before, after, pairs_by_id(before.record.cells, after.record.cells), [], budgets)


def run_before(run: Run) -> Run:
    """The run to compare with when the user names only one.

    It is the baseline ``default`` if that is of the same experiment, else the newest complete run of the experiment
    that began earlier, else ``default``. Raises UsageError if there is none.
    """
    candidates: list[str] = []
    with opened_store() as store:
        if store is not None:
            default = store.baselines().get(DEFAULT)
            known = any(entry.id == run.record.run for entry in store.runs())
            previous = store.previous(run.record.run) if known else None
            candidates = [] if previous is None else [previous.id]
            if default is not None and default.run != run.record.run:
                is_same = store.entry(default.run).experiment == run.record.experiment
                candidates.insert(0 if is_same else len(candidates), default.run)
    if not candidates:
        what = f"found no complete run of experiment '{run.record.experiment}' before {run.record.run}"
        raise UsageError(what, hint=_SET_A_BASELINE)
    return stored_run(candidates[0], lab_dir())


def _pairs(before: NamedCells, after: NamedCells) -> Sequence[CellPair]:
    """Pair one named cell with another, whatever their ids; else pair the named cells by id."""
    if before.cells is not None and after.cells is not None and len(before.cells) == len(after.cells) == 1:
        return [CellPair(before.cells[0], after.cells[0])]
    return pairs_by_id(_cells_to_pair(before, after.cells), _cells_to_pair(after, before.cells))


def _cells_to_pair(named: NamedCells, other_cells: Sequence[CellRecord] | None) -> Sequence[CellRecord]:
    if named.cells is not None:
        return named.cells
    named_ids = None if other_cells is None else {cell.id for cell in other_cells}
    return [cell for cell in named.run.record.cells if named_ids is None or cell.id in named_ids]


def _compared(
    before: Run, after: Run, pairs: Sequence[CellPair], only: Sequence[str], budgets: Budgets | None = None
) -> ComparedRuns:
    selected = _selected(pairs, only)
    budgets = stored_budgets(after.directory) if budgets is None else budgets
    comparison = compare(selected, budgets, before.record.cells, after.record.cells)
    if comparison.is_empty:
        refused = [f"{pair.title}: {why}" for pair, why in comparison.not_compared]
        refused += [f"{cell.pair.title}: {cell.reason}" for cell in comparison.cells if cell.has_no_number]
        raise _nothing(before, after, selected, refused)
    same = before.record.run == after.record.run
    differs = [] if same else differing_provenance(_provenance(before), _provenance(after), comparison)
    return ComparedRuns(before, after, comparison, differs)


def _selected(pairs: Sequence[CellPair], only: Sequence[str]) -> Sequence[CellPair]:
    """The pairs with a cell that a filter matches. Raises UsageError for a filter that is invalid or matches none."""
    if not only:
        return pairs
    chosen: set[int] = set()  # indices, since pairs are compared by their whole records
    for text in only:
        try:
            cells = CellFilter.of(text)
        except FilterError as error:
            raise UsageError(str(error), where=f"--only {text!r}", hint=error.hint) from None
        matching = {
            place
            for place, pair in enumerate(pairs)
            if any(cell is not None and cells.matches(names_of(cell)) for cell in (pair.before, pair.after))
        }
        if not matching:
            hint = cells.remark or "choose among these cells, by parts of their names"
            cells_there = ["cells:", *shown([pair.title for pair in pairs], _SHOWN)]
            raise UsageError("no cell matches", where=f"--only {text!r}", detail=cells_there, hint=hint)
        chosen |= matching
    return [pair for place, pair in enumerate(pairs) if place in chosen]


def _nothing(before: Run, after: Run, pairs: Sequence[CellPair], refused: Sequence[str]) -> UsageError:
    """The error for a comparison without pairs: the cells were refused, or have no counterpart."""
    for run in (before, after):
        if not run.record.cells:
            what = f"no cell of run {run.record.run} has an outcome yet"
            return UsageError(what, hint=f"resume it: {PROGRAM} run CONFIG --resume")
    runs = list(dict.fromkeys(run.record.run for run in (before, after)))
    what = f"{' and '.join(runs)} {'has' if len(runs) == 1 else 'have'} no comparable cells"
    if refused:
        return UsageError(what, detail=refused[:_SHOWN], hint=_NAME_CELLS)
    detail = []
    for run, cells in ((before, [pair.before for pair in pairs]), (after, [pair.after for pair in pairs])):
        detail += shown([f"{run.record.run}:{cell.id}" for cell in cells if cell is not None], _SHOWN // 2)
    return UsageError(f"{what}: no two cells have the same id", detail=detail, hint=_NAME_CELLS)


def _provenance(run: Run) -> RecordedProvenance:
    facts = None
    with opened_store() as store:
        if store is not None and any(entry.id == run.record.run for entry in store.runs()):
            facts = store.provenance(run.record.run)
    return provenance_of(run.directory, facts)


SHOWN_PAIRS = 20
shown_ids = partial(shown, most=SHOWN_PAIRS, rest="...")
