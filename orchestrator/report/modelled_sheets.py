# SPDX-License-Identifier: GPL-2.0-only
"""Modelled times as tables: published, modelled, error; and how well they agree with what was published."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.model_errors import LARGE, error_reasons
from orchestrator.catalog.probes import probes, published_column
from orchestrator.catalog.reference import ReferenceTable, reference_tables
from orchestrator.report.cost_sheets import cost_sheet
from orchestrator.report.figures import NOTHING, published_figure
from orchestrator.report.grid import Grid, Row
from orchestrator.report.modelled_fit import Agreement, agreement
from orchestrator.report.published import source
from orchestrator.report.sheet import Sheet
from orchestrator.results.modelled import ModelledCell, ModelledRun

_MEANING = (
    "Modelled time is what was counted, at the costs of a cost table; it was not measured. The band has every constant "
    "within its range and every published cell within its uncertainty, all at once; it has nothing of what the model "
    "leaves out."
)
_ROLES = "calibration: the costs were fitted to this figure; excluded: not fitted to, as declared before fitting."
_PAIRS = (
    "Order and ratios are of all pairs of one table's cells that are not excluded; a ratio is in the band where both "
    "bands allow it."
)
_HEADINGS = ["predicted", "median error", "worst error", "in order", "ratios in band"]


@dataclass(frozen=True)
class _Table:
    """One of the run's tables: cells with times, and the published table that they are compared with."""

    cells: Sequence[ModelledCell]
    published: ReferenceTable | None

    @property
    def name(self) -> str:
        """Its name in the run, else the published table's, else the CPU's."""
        first = self.cells[0]
        return first.table or (self.published.name if self.published else first.cpu)


def modelled_sheets(modelled: ModelledRun) -> list[Sheet]:
    """A sheet for each of the run's tables, and one that says how well they agree with what was published."""
    tables = [
        _Table(list(cells), _published([cell for cell in modelled.cells if _key(cell) == key]))
        for key, cells in groupby([cell for cell in modelled.cells if cell.reason is None], _key)
    ]
    return [*map(_times, tables), _summary(tables, modelled.cells), *map(cost_sheet, modelled.costs)]


def _key(cell: ModelledCell) -> tuple[str | None, str, str]:
    return cell.table, cell.cpu, cell.handler


def _published(cells: Sequence[ModelledCell]) -> ReferenceTable | None:
    name = next((cell.reference.table for cell in cells if cell.reference is not None), None)
    return None if name is None else reference_tables().get(name)


def _times(table: _Table) -> Sheet:
    first = table.cells[0]
    kernels = ", ".join(dict.fromkeys(cell.kernel for cell in table.cells))
    overheads_of = f"Overhead of probes on {cpu(first.cpu).title}, modelled"
    where = f"{table.name}: {first.cpu}, counted on kernel {kernels}, handler {first.handler}"
    title, *facts = [table.published.title, overheads_of, where] if table.published else [overheads_of, where]
    headings = ["published nsec", "modelled nsec", "from", "to", "error", "modelled cycles", "the published figure is"]
    return Sheet(
        title=title,
        facts=facts,
        grid=Grid(headings, [[_row(cell) for cell in table.cells]], together=5),
        sentences=[source(table.published.id)] if table.published else [],
        footnotes=[],
        proofs=[],
    )


def _row(cell: ModelledCell) -> Row:
    kind = probes().get(cell.probe)
    low, high = cell.interval or (None, None)
    figures = [published_figure(cell.published), *map(_nanoseconds, (cell.overhead, low, high))]
    cycles = NOTHING if cell.cycles is None else f"{cell.cycles:.0f}"
    return Row(kind.title if kind else cell.probe, [*figures, _percent(cell.error), cycles, cell.role or NOTHING])


def _summary(tables: Sequence[_Table], cells: Sequence[ModelledCell]) -> Sheet:
    blocks = []
    for name in dict.fromkeys(table.cells[0].cpu for table in tables):
        of_cpu = [table for table in tables if table.cells[0].cpu == name]
        judged = [(table, agreement(table.published, table.cells)) for table in of_cpu if table.published]
        if judged:
            rows = [_agreement_row(table.name, [one]) for table, one in judged]
            total = _agreement_row(name, [one for _, one in judged])
            blocks.append([*rows, Row(total.label, total.cells, "bold")])
    if not blocks:
        blocks = [[Row(name, [NOTHING] * len(_HEADINGS)) for name in dict.fromkeys(cell.cpu for cell in cells)]]
    errors = [sentence for table in tables for sentence in _large_errors(table)]
    return Sheet(
        title="Modelled and published times",
        facts=["errors of the overheads that were not fitted to"],
        grid=Grid(_HEADINGS, blocks),
        sentences=[
            _MEANING,
            _ROLES,
            _PAIRS,
            *_other_kernels(tables),
            *errors,
            *_orders(tables),
            *_exclusions(cells),
            *_reasons(cells),
        ],
        footnotes=[],
        proofs=[],
    )


def _agreement_row(name: str, found: Sequence[Agreement]) -> Row:
    errors = [error for one in found for error in one.errors]
    pairs = sum(one.pairs for one in found)
    kept, in_band = sum(one.kept for one in found), sum(one.in_band for one in found)
    middle = _percent(median(map(abs, errors))).lstrip("+") if errors else NOTHING
    worst = _percent(max(errors, key=abs)) if errors else NOTHING
    return Row(name, [str(len(errors)), middle, worst, f"{kept} of {pairs}", f"{in_band} of {pairs}"])


def _orders(tables: Sequence[_Table]) -> Iterator[str]:
    for table in tables:
        found = agreement(table.published, table.cells) if table.published else None
        if found is not None and found.lost:
            yield f"{table.name}: not in the published order: {', '.join(found.lost)}."
        if found is not None and found.disputed:
            disputed = ", ".join(found.disputed)
            yield f"{table.name}: not in order, and the document's own tables disagree: {disputed}."


def _large_errors(table: _Table) -> Iterator[str]:
    """Predicted cells that miss by much, and why."""
    large = [cell for cell in table.cells if cell.role == "predicted" and abs(cell.error or 0.0) > LARGE]
    known = error_reasons(table.published.id) if table.published else []
    for reason in known:
        concerned = [cell for cell in large if published_column(cell.probe) in reason.columns]
        if concerned:
            errors = ", ".join(f"{cell.probe} {_percent(cell.error)}" for cell in concerned)
            yield f"{table.name}, {errors}: {reason.reason}"
    explained = {column for reason in known for column in reason.columns}
    for cell in large:
        if published_column(cell.probe) not in explained and cell.calibration_kernel is None:
            yield f"{table.name}, {cell.probe} {_percent(cell.error)}: the reason is not known."


def _other_kernels(tables: Sequence[_Table]) -> Iterator[str]:
    """Published figures that costs were fitted to, with the counts of other kernels than those of the run."""
    for table in tables:
        found: dict[tuple[str, str], list[ModelledCell]] = {}
        for cell in table.cells:
            if cell.calibration_kernel is not None:
                found.setdefault((cell.kernel, cell.calibration_kernel), []).append(cell)
        for (kernel, fitted_to), cells in found.items():
            errors = ", ".join(f"{cell.probe} {_percent(cell.error)}" for cell in cells)
            yield (
                f"{table.name}, {errors}: predicted from the counts of kernel {kernel}; the costs were fitted to these "
                f"figures with the counts of {fitted_to}."
            )


def _exclusions(cells: Sequence[ModelledCell]) -> Iterator[str]:
    for cell in cells:
        if cell.exclusion is not None:
            yield f"{cell.table or cell.id}, {cell.probe} is excluded: {cell.exclusion}"


def _reasons(cells: Sequence[ModelledCell]) -> Iterator[str]:
    """Why cells have no modelled time, once for each reason."""
    names: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.reason is not None:
            names.setdefault((cell.cpu, cell.reason), []).append(cell.table or cell.id)
    for (name, reason), where in names.items():
        yield f"{name} ({', '.join(dict.fromkeys(where))}) has no modelled time: {reason}"


def _nanoseconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    if value is None:
        return NOTHING
    text = f"{100 * value:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text
