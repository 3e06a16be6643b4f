# SPDX-License-Identifier: GPL-2.0-only
"""The runs and cells that ``compare`` compares, by their names on the command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from orchestrator.cli.named_cells import NamedCells, named
from orchestrator.errors import UsageError
from orchestrator.experiment.file.stored_budgets import stored_budgets
from orchestrator.paths import lab_dir
from orchestrator.program import PROGRAM
from orchestrator.results.baselines import DEFAULT
from orchestrator.results.cell_filter import CellFilter, FilterError, names_of
from orchestrator.results.compared_runs import ComparedRuns, differing_origin
from orchestrator.results.comparison import CellPair, compare, pairs_by_id, pairs_by_kernel
from orchestrator.results.contract import CellRecord
from orchestrator.results.origin import Origin, origin_of
from orchestrator.results.runs import Run, find_run
from orchestrator.results.store import FILE_NAME, Store

_SHOWN = 10
_NAME_CELLS = f"name one cell of each: {PROGRAM} compare RUN:CELL RUN:CELL"
_SET_A_BASELINE = f"name both: {PROGRAM} compare A B; or once: {PROGRAM} baseline set default RUN"


def compared(names: Sequence[str], only: Sequence[str]) -> ComparedRuns:
    """Two runs, or cells of them: ``RUN`` or ``RUN:CELL`` each; one alone is compared with the run before it.

    Raises UsageError where there is nothing to compare.
    """
    first = named(names[0])  # of two wrong names the first one is told
    before, after = (first, named(names[1])) if len(names) > 1 else (NamedCells(run_before(first.run), None), first)
    found = _compared(before.run, after.run, _pairs(before, after), only)
    run = after.run.record.run
    if before.run.record.run == run and all(_is_one_cell(one.pair) for one in found.comparison.cells):
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
    lab = lab_dir()
    wanted: list[str] = []
    if (lab / FILE_NAME).exists():
        with Store.open(lab) as store:
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
    return find_run(wanted[0], lab)


def _is_one_cell(pair: CellPair) -> bool:
    """Whether both cells of a pair of one run are the same."""
    return pair.before is not None and pair.after is not None and pair.before.id == pair.after.id


def _pairs(before: NamedCells, after: NamedCells) -> Sequence[CellPair]:
    """One cell with one other, whatever they are called; otherwise cells of one id, of those that were named."""
    if before.cells is not None and after.cells is not None and len(before.cells) == len(after.cells) == 1:
        return [CellPair(before.cells[0], after.cells[0])]
    first, second = _meant(before, after.cells), _meant(after, before.cells)
    return pairs_by_id(first, second)


def _meant(side: NamedCells, others: Sequence[CellRecord] | None) -> Sequence[CellRecord]:
    """The cells that were named; of a run that was named alone, those that were named of the other."""
    if side.cells is not None:
        return side.cells
    wanted = None if others is None else {cell.id for cell in others}
    return [cell for cell in side.run.record.cells if wanted is None or cell.id in wanted]


def _compared(before: Run, after: Run, pairs: Sequence[CellPair], only: Sequence[str]) -> ComparedRuns:
    selected = _selected(pairs, only)
    comparison = compare(selected, stored_budgets(after.directory), before.record.cells, after.record.cells)
    if comparison.is_empty:
        refused = [f"{one.pair.title}: {one.reason}" for one in comparison.not_compared]
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
            if any(_matches(cells, cell) for cell in (pair.before, pair.after))
        }
        if not found:
            hint = cells.remark or "choose among these cells, by parts of their names"
            raise UsageError("no cell matches", where=f"--only {text!r}", detail=_listed(pairs), hint=hint)
        wanted |= found
    return [pair for place, pair in enumerate(pairs) if place in wanted]


def _matches(wanted: CellFilter, cell: CellRecord | None) -> bool:
    return cell is not None and wanted.matches(names_of(cell))


def _listed(pairs: Sequence[CellPair]) -> Sequence[str]:
    more = [f"... and {len(pairs) - _SHOWN} more"] if len(pairs) > _SHOWN else []
    return ["cells:", *(pair.title for pair in pairs[:_SHOWN]), *more]


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
        ids = [cell.id for cell in cells if cell is not None]
        detail += [f"{run.record.run}:{one}" for one in ids[: _SHOWN // 2]]
        detail += [f"... and {len(ids) - _SHOWN // 2} more"] if len(ids) > _SHOWN // 2 else []
    return UsageError(f"{what}: no two cells have one id", detail=detail, hint=_NAME_CELLS)


def _origin(run: Run) -> Origin:
    """What a run was made with: its own file, or what this lab's store has of it."""
    lab = lab_dir()
    facts = None
    if (lab / FILE_NAME).exists():
        with Store.open(lab) as store:
            if any(entry.id == run.record.run for entry in store.runs()):
                facts = store.provenance(run.record.run)
    return origin_of(run.directory, facts)
