# SPDX-License-Identifier: GPL-2.0-only
"""The report of attaching: a block for each mechanism, a row for each number of functions, and how costs grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.benchmarks.attaching import attach_parameters
from orchestrator.benchmarks.attaching.rows import BENCHMARK, mechanism_of, mechanisms
from orchestrator.report.chart import Chart, Curve, CurveChart, CurvePane
from orchestrator.report.columns import Column, Columns, cell_columns
from orchestrator.report.figures import NOTHING, figure
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Row
from orchestrator.report.highlights import Highlight, Rank
from orchestrator.report.proofs import proof_lists
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import CellGroup, TableReport, file_name, processors
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import Growth, growth

_Figure = Callable[[CellRecord], float | None]
_FEWEST = 100
"""Functions from which on costs count for the exponent: below, what attaching costs at all hides its growth."""
_FEWEST_POINTS = 3
"""Fewest points for an exponent: any two lie on a line."""


def _value(cell: CellRecord) -> float | None:
    return cell.value


_FIGURES: dict[str, _Figure] = {
    "attach, instructions": _value,
    "detach, instructions": attach_parameters.DETACH.of,
    "memory, bytes": attach_parameters.KEPT_BYTES.of,
}
"""Figures whose growth exponent is printed, by their titles."""


def _whole(read: _Figure) -> Callable[[CellRecord], str]:
    def text(cell: CellRecord) -> str:
        value = read(cell)
        return NOTHING if value is None else f"{value:.0f}"

    return text


def _milliseconds(cell: CellRecord) -> str:
    attach, detach = attach_parameters.ATTACH_NS.of(cell), attach_parameters.DETACH_NS.of(cell)
    return f"{(attach or 0) / 1e6:.1f} / {(detach or 0) / 1e6:.1f}"


def _both(attach: parameters.CountParameter, detach: parameters.CountParameter) -> Callable[[CellRecord], str]:
    return lambda cell: f"{attach.of(cell)} / {detach.of(cell)}"


_COLUMNS = (
    *(Column(title, _whole(read)) for title, read in _FIGURES.items()),
    Column("left, bytes", _whole(attach_parameters.LEFT_BYTES.of)),
    Column("text, bytes", _whole(attach_parameters.TEXT_BYTES.of)),
    Column("IPI rounds", _both(attach_parameters.IPI_ROUNDS, attach_parameters.DETACH_IPI_ROUNDS)),
    Column("grace periods", _both(attach_parameters.GRACE_PERIODS, attach_parameters.DETACH_GRACE_PERIODS)),
    Column("ms", _milliseconds),
    Column("a hit", lambda cell: figure(attach_parameters.HIT.of(cell), "ns")),
)


def _title(cell: CellRecord) -> str:
    known = mechanisms().get(mechanism_of(cell.probe))
    return cell.probe if known is None else known.title


def _functions(cell: CellRecord) -> str:
    asked, attached = attach_parameters.FUNCTIONS.of(cell) or "", attach_parameters.ATTACHED_FUNCTIONS.of(cell)
    return asked if attached is None or asked == str(attached) else f"{asked}: {attached}"


def _name(cell: CellRecord) -> str:
    return f"{_title(cell)}, {_functions(cell)}"


def _points(cells: Sequence[CellRecord], read: _Figure) -> list[tuple[float, float]]:
    pairs = ((attach_parameters.ATTACHED_FUNCTIONS.of(cell), read(cell)) for cell in cells)
    return sorted((float(count), cost) for count, cost in pairs if count and cost and cost > 0)


def _growth(cells: Sequence[CellRecord], read: _Figure) -> Growth | None:
    points = [point for point in _points(cells, read) if point[0] >= _FEWEST]
    return growth(points) if len(points) >= _FEWEST_POINTS else None


class AttachingReport(TableReport):
    """A table for each kernel, a block for each mechanism."""

    KEY_PARAMETERS = (parameters.SEED,)

    def handles(self, benchmark: str) -> bool:
        return benchmark == BENCHMARK

    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        """Return the only group as a table."""
        (group,) = groups
        first, footnotes = group.first, Footnotes(group.cells, _name, lambda _: None)
        table = cell_columns(_COLUMNS, footnotes, NOTHING)
        return Sheet(
            title="Attaching to many functions",
            facts=[
                f"{first.cpu}, {processors(first)}, kernel {group.kernel}; two figures are of attaching / detaching"
            ],
            grid=table.grid(*(_block(table, cells) for cells in _by_mechanism(group).values())),
            sentences=list(_sentences(group)),
            footnotes=footnotes.all(),
            proofs=proof_lists(group.cells, _name),
        )

    def findings(self, groups: Sequence[CellGroup]) -> Iterator[Highlight]:
        (group,) = groups
        for cells in _by_mechanism(group).values():
            fit, most = _growth(cells, _value), max(_points(cells, _value), default=None)
            if fit is not None and most is not None:
                yield Highlight(
                    Rank.OTHER,
                    f"{_title(cells[0])}: attaching to {most[0]:.0f} functions takes {most[1]:.0f} instructions, and "
                    f"grows like their number to the power of {fit.exponent:.2f}.",
                    fit.exponent,
                )

    def charts(self, groups: Sequence[CellGroup]) -> Mapping[str, Chart]:
        (group,) = groups
        charts = {}
        for name, title, at_once in (
            ("at-once", "all functions at once", True),
            ("one-by-one", "functions one by one", False),
        ):
            chosen = [
                cells
                for mechanism, cells in _by_mechanism(group).items()
                if mechanism in mechanisms() and mechanisms()[mechanism].at_once == at_once
                if len(_points(cells, _value)) > 1
            ]
            # So that a mechanism has one colour in all panes: those without memory, which one of them lacks, come last.
            chosen.sort(key=lambda cells: not _points(cells, attach_parameters.KEPT_BYTES.of))
            panes = []
            for of, read in _FIGURES.items():
                curves = [Curve(_title(cells[0]), points) for cells in chosen if (points := _points(cells, read))]
                panes.append(CurvePane("functions", of, curves, logarithmic=True))
            if chosen:
                subtitle = f"{group.first.cpu}, {group.kernel}"
                charts[f"{file_name(groups)}-{name}"] = CurveChart(f"Attaching to {title}", subtitle, panes)
        return charts


def _by_mechanism(group: CellGroup) -> Mapping[str, Sequence[CellRecord]]:
    cells: dict[str, list[CellRecord]] = {}
    for cell in group.cells:
        cells.setdefault(mechanism_of(cell.probe), []).append(cell)
    return cells


def _block(table: Columns[CellRecord], cells: Sequence[CellRecord]) -> Iterator[Row]:
    yield table.title(_title(cells[0]))
    for cell in cells:
        yield table.row(f"  {_functions(cell)}", cell)
    # Not of memory, which the kernel takes by slabs and pages.
    fits = [_growth(cells, read) for read in (_value, attach_parameters.DETACH.of)]
    if any(fits):
        exponents = [NOTHING if fit is None else f"{fit.exponent:.2f}" for fit in fits]
        yield table.texts("  exponent", exponents)


def _sentences(group: CellGroup) -> Iterator[str]:
    yield (
        "Instructions are a count, not time, and include the timer's ticks and what else the kernel does meanwhile; "
        "while it waits for a grace period, time passes without them: ms are of the guest's clock."
    )
    yield (
        "Memory is what the kernel holds more than before (slab, vmalloc, per CPU), while attached and afterwards; an "
        "IPI round has each CPU do something, of which this guest has one."
    )
    if any(cell.value is not None for cell in group.cells):
        yield f"An exponent is of three numbers or more, from {_FEWEST} on. A hit is a mean of all of a call."
    for cells in _by_mechanism(group).values():
        grown = [cell for cell in cells if attach_parameters.GROWS.of(cell)]
        last = max(grown, key=lambda cell: attach_parameters.ATTACHED_FUNCTIONS.of(cell) or 0, default=None)
        if last is not None:
            yield f"What grows up to {_name(last)}: {attach_parameters.GROWS.of(last)}."


REPORT = AttachingReport()
