# SPDX-License-Identifier: GPL-2.0-only
"""The report's interface to a benchmark kind, and the groups of a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.util import find_spec
from itertools import chain, count
from operator import attrgetter
from pathlib import Path
from typing import ClassVar

from orchestrator.catalog.probes import BASELINE, published_column
from orchestrator.catalog.published_tables import ReferenceTable, reference_tables
from orchestrator.errors import HostError
from orchestrator.plain_text import listed
from orchestrator.program import PROGRAM
from orchestrator.report.chart import Chart
from orchestrator.report.columns import Column, cell_columns
from orchestrator.report.figures import NOTHING, figure, published_figure, unit_name
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.highlights import Highlight, overhead_findings
from orchestrator.report.proofs import proof_lists
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.faults import storage_faults
from orchestrator.results.modelled import ModelledCell
from orchestrator.results.parameters import ACCELERATOR, CHANNEL, IMAGE


@dataclass(frozen=True)
class CellGroup:
    """A group of cells that are compared with each other: a table has one or more.

    They are of ``kernel``, except for probes that need another one.
    """

    cells: Sequence[CellRecord]
    kernel: str
    handler: str | None = None
    """The handler, if the groups of its table differ in it."""
    times: Mapping[str, ModelledCell] = field(default_factory=dict)
    """The modelled times of cells by id, or why there is none; empty unless one has a time."""

    @property
    def first(self) -> CellRecord:
        """A cell to read shared fields from."""
        return self.cells[0]

    @cached_property
    def references(self) -> Sequence[str]:
        """The ids of the published tables that the cells are compared with, usually one."""
        return list(dict.fromkeys(cell.reference.table for cell in self.cells if cell.reference))

    @property
    def reference(self) -> ReferenceTable | None:
        """The published table, if there is exactly one and this version knows it."""
        return reference_tables().get(self.references[0]) if len(self.references) == 1 else None

    @property
    def name(self) -> str:
        """A short name: the experiment's table, else the published table, else the CPU."""
        if self.first.table is not None:
            return self.first.table
        return self.reference.name if self.reference else self.first.cpu

    def time(self, cell: CellRecord) -> ModelledCell | None:
        """The cell's modelled time, if it has one."""
        modelled_cell = self.times.get(cell.id)
        return None if modelled_cell is None or modelled_cell.overhead is None else modelled_cell

    def place(self, name: str | None) -> str:
        """``name`` and, if needed, the handler, for a sentence; may be empty."""
        return ", ".join(part for part in (name, self.handler and f"handler {self.handler}") if part)

    @property
    def emulated(self) -> bool:
        """Whether the samples are times of QEMU's emulator, not of a processor."""
        return self.first.clock == "wall" and any(ACCELERATOR.of(cell) == "tcg" for cell in self.cells)

    def elsewhere(self, cell: CellRecord) -> bool:
        return cell.kernel != self.kernel


def by_kernel(cells: Sequence[CellRecord]) -> Iterator[CellGroup]:
    """A group per kernel; the cells of a kernel that only adds probes are in the main kernel's group."""
    kernels = Counter(cell.kernel for cell in cells)
    home = kernels.most_common(1)[0][0]
    at_home = _probed(cell for cell in cells if cell.kernel == home)
    guests = {
        kernel
        for kernel in kernels
        if at_home and not at_home & _probed(cell for cell in cells if cell.kernel == kernel)
    }
    yield from (
        CellGroup(
            [cell for cell in cells if cell.kernel == kernel or (kernel == home and cell.kernel in guests)], kernel
        )
        for kernel in kernels
        if kernel not in guests
    )


def values_of(cell: CellRecord, names: Iterable[str]) -> tuple[object, ...]:
    """The cell's parameters of these names, None for missing ones."""
    return tuple(cell.parameters.get(name) for name in names)


def file_name(groups: Sequence[CellGroup]) -> str:
    """The name of the chart file of a table's groups, without suffix; not unique."""
    first = groups[0]
    if len(groups) > 1 and first.reference is not None:
        return first.reference.document_id
    if first.first.table is not None:
        return first.first.table
    return f"{first.name}-{first.kernel}-{first.first.handler}"


def _probed(cells: Iterable[CellRecord]) -> set[str]:
    return {cell.probe for cell in cells} - {BASELINE}


@dataclass(frozen=True)
class Published:
    """A column of a published table, in its unit; ``average`` is None if only the overhead was published."""

    samples: Sequence[float] = ()
    average: float | None = None
    overhead: float | None = None


def published(cell: CellRecord, table_id: str) -> Published:
    """The figures of the table ``table_id`` for the cell, none without such a column.

    They come from the catalogue, since a cell without a number has no reference in its record; for an unknown table
    they come from the record.
    """
    table = reference_tables().get(table_id)
    if table is None:
        recorded = cell.reference if cell.reference and cell.reference.table == table_id else None
        return Published(average=recorded.value, overhead=recorded.overhead) if recorded else Published()
    column = published_column(cell.probe)
    if column is None or column not in table.columns:
        return Published()
    return Published(table.samples.get(column, ()), table.average(column), table.overhead(column))


def published_unit(cells: Sequence[CellRecord], table_id: str) -> str:
    """The unit of the table ``table_id``, which one of the cells is compared with."""
    return next(cell.reference.unit for cell in cells if cell.reference and cell.reference.table == table_id)


def source(table_id: str) -> str:
    """A sentence on the source of published figures."""
    table = reference_tables().get(table_id)
    if table is None:  # a run of another version
        return f"Published: {table_id}."
    remarks = "".join(f" {text}" for text in (table.conditions, table.source) if text)
    return f"Published: {table.title} ({table.id}); kernel {table.kernel}, {table.processor}.{remarks}"


def published_overhead(cell: CellRecord) -> str:
    """The published overhead of the cell with its unit."""
    reference = cell.reference
    return NOTHING if reference is None else f"{published_figure(reference.overhead)} {unit_name(reference.unit)}"


INDICATION = "an indication only"


def processors(cell: CellRecord) -> str:
    """``1 CPU``, ``2 CPUs``."""
    return "1 CPU" if cell.smp == 1 else f"{cell.smp} CPUs"


def unit_meaning(group: CellGroup) -> str:
    """A sentence that explains the group's unit."""
    if group.first.clock == "instructions":
        return "Instructions are a count, not time."
    if group.emulated:
        return (
            f"Nanoseconds of the guest's clock in QEMU's emulator (TCG) are {INDICATION}: "
            "they are times of the emulator on this host, not of a processor."
        )
    return "Nanoseconds of the guest's clock, on this host's processor."


def other_kernel(group: CellGroup, cell: CellRecord) -> str | None:
    """A remark on a valid cell measured on another kernel than the group's, or None."""
    if not group.elsewhere(cell) or cell.status != "ok":
        return None
    if cell.probe == BASELINE:
        return f"measured on {cell.kernel}, for the probes there"
    own_cell = next(
        (
            candidate
            for candidate in group.cells
            if candidate.kernel == cell.kernel and candidate.probe == BASELINE and candidate.value is not None
        ),
        None,
    )
    against = f", with that kernel's baseline of {figure(own_cell.value, own_cell.unit)}" if own_cell else ""
    return f"measured on {cell.kernel}{against}"


FIT = "fit"


def time_figures(cell: ModelledCell | None, unit: str = "ns", *, marked: bool = True) -> tuple[str, str, str]:
    """A modelled overhead and both ends of its band, in nanoseconds, or in microseconds where those were published.

    The first is ``marked`` if the prices were fitted to the very figure that it stands beside.
    """
    if cell is None or cell.overhead is None or cell.interval is None:
        return NOTHING, NOTHING, NOTHING
    times = (cell.overhead, *cell.interval)
    value, low, high = (f"{time / 1000:.3f}" if unit == "us" else f"{time:.1f}" for time in times)
    return f"{value} {FIT}" if marked and cell.is_fit else value, low, high


def times_meaning(groups: Sequence[CellGroup], name: Callable[[CellRecord], str]) -> Iterator[str]:
    """What modelled times are, and why some cells have none; nothing where there are no times."""
    cells = [(group, cell) for group in groups for cell in group.cells if cell.id in group.times]
    times = [time for group, cell in cells if (time := group.time(cell)) is not None]
    shown = " and ".join(f"{PROGRAM} model show {name}" for name in dict.fromkeys(time.cpu for time in times))
    computed = "Modelled nanoseconds are computed from the counts and a price list, and were not measured"
    if times:
        yield f"{computed}: {shown}."
    if any(time.is_fit for time in times):
        kernels = dict.fromkeys(time.calibration_kernel for time in times if time.calibration_kernel is not None)
        counts = f", with the counts of {', '.join(kernels)}" if kernels else ""
        yield f"A {FIT}: the prices were fitted to the published figure{counts}; it is no prediction."
    without: dict[str, list[str]] = {}
    for group, cell in cells:
        reason = group.times[cell.id].reason
        if reason is not None:
            without.setdefault(reason, []).append(name(cell))
    for reason, names in without.items():
        yield f"No modelled time of {listed(names)}: {reason.rstrip('.')}."


class TableReport(ABC):
    """How the cells of a benchmark kind are divided into tables, printed and drawn.

    Cells with equal keys are split into groups. A table and its charts have one or more groups, all of one kind. By
    default each kernel has a table, of cells with equal ``KEY_PARAMETERS``.
    """

    KEY_PARAMETERS: ClassVar[Sequence[str]] = (IMAGE, CHANNEL)

    @abstractmethod
    def handles(self, benchmark: str) -> bool:
        """Whether this kind prints records of the benchmark."""

    def table_key(self, cell: CellRecord) -> Hashable:
        """The kind's part of the cell's key, besides table, machine, benchmark, metric and clock."""
        return cell.handler, *values_of(cell, self.KEY_PARAMETERS)

    def groups(self, cells: Sequence[CellRecord]) -> Iterable[CellGroup]:
        """Split cells of equal keys into groups: one per kernel (``by_kernel``), or one across kernels."""
        return by_kernel(cells)

    def same_table(self, group: CellGroup, groups: Sequence[CellGroup]) -> bool:
        """Whether to add the group to the table of ``groups``, which is of this kind, too."""
        return False

    @abstractmethod
    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        """The table of ``groups``."""

    @abstractmethod
    def findings(self, groups: Sequence[CellGroup]) -> Iterable[Highlight]:
        """Sentences on the table; a run prints the three most important ones of all tables."""

    def charts(self, groups: Sequence[CellGroup]) -> Mapping[str, Chart]:
        """The table's charts by file names without suffixes; may be empty."""
        return {}


class PlainReport(TableReport):
    """A row per cell, named by its id, for benchmarks that this version does not know."""

    def handles(self, benchmark: str) -> bool:
        return True

    def table_key(self, cell: CellRecord) -> None:
        """None, because ids distinguish the rows."""

    def groups(self, cells: Sequence[CellRecord]) -> list[CellGroup]:
        return [CellGroup(cells, cells[0].kernel)]

    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        (group,) = groups
        first, unit = group.first, unit_name(group.first.unit)
        footnotes = Footnotes(group.cells, _id, lambda _: None)
        place = f"{first.table}: " if first.table else ""
        indication = f"; {INDICATION}" if group.emulated else ""
        columns = [
            Column(f"value({unit})", lambda cell: figure(cell.value, cell.unit)),
            Column(f"overhead({unit})", lambda cell: figure(cell.overhead, cell.unit)),
            Column(f"95 % from({unit})", lambda cell: figure(cell.interval and cell.interval[0], cell.unit)),
            Column(f"95 % to({unit})", lambda cell: figure(cell.interval and cell.interval[1], cell.unit)),
            Column("published overhead", published_overhead),
        ]
        table = cell_columns(columns, footnotes, NOTHING)
        return Sheet(
            title=first.benchmark,
            facts=[f"{place}{first.cpu}, {processors(first)}, {first.metric} in {first.unit}{indication}"],
            grid=table.grid(table.row(cell.id, cell) for cell in group.cells),
            sentences=["This version does not know this benchmark: each cell has a row.", unit_meaning(group)],
            footnotes=footnotes.all(),
            proofs=proof_lists(group.cells, _id),
        )

    def findings(self, groups: Sequence[CellGroup]) -> Iterator[Highlight]:
        cells = [cell for group in groups for cell in group.cells]
        return overhead_findings(cells, _id, groups[0].place(groups[0].first.table))


_id = attrgetter("id")


@dataclass(frozen=True)
class ReportRegistry:
    """The benchmark kinds; the first one that handles a benchmark prints it. ``times`` models a run's cells, by id."""

    kinds: Sequence[TableReport]
    times: Callable[[RunRecord], Mapping[str, ModelledCell]] = lambda _: {}

    def kind_of(self, cell: CellRecord) -> TableReport:
        """The record's kind, or the plain one for an unknown benchmark."""
        return next((kind for kind in self.kinds if kind.handles(cell.benchmark)), _PLAIN)


_PLAIN = PlainReport()


def cell_groups(run: RunRecord, registry: ReportRegistry) -> list[CellGroup]:
    """The run's cells in groups, in the run's order."""
    alike: dict[Hashable, list[CellRecord]] = {}
    for cell in run.cells:
        hashable = registry.kind_of(cell).table_key(cell)
        key = (cell.table, cell.cpu, cell.smp, cell.benchmark, cell.metric, cell.clock, cell.unit, hashable)
        alike.setdefault(key, []).append(cell)
    all_groups = [group for cells in alike.values() for group in registry.kind_of(cells[0]).groups(cells)]
    handlers: dict[str | None, set[str]] = {}
    for group in all_groups:
        handlers.setdefault(group.first.table, set()).add(group.first.handler)
    times = registry.times(run)
    return [
        replace(
            group,
            handler=group.first.handler if len(handlers[group.first.table]) > 1 else None,
            times={cell.id: times[cell.id] for cell in group.cells if cell.id in times},
        )
        for group in all_groups
    ]


def run_tables(run: RunRecord, registry: ReportRegistry) -> list[tuple[TableReport, Sequence[CellGroup]]]:
    """The kind and the groups of each table, in the run's order."""
    pairs: list[tuple[TableReport, list[CellGroup]]] = []
    for group in cell_groups(run, registry):
        kind = registry.kind_of(group.first)
        fitting = next(
            (groups for other_report, groups in pairs if other_report is kind and kind.same_table(group, groups)), None
        )
        if fitting is None:
            pairs.append((kind, [group]))
        else:
            fitting.append(group)
    return [(kind, groups) for kind, groups in pairs]


FOLDER = "charts"


def draw_charts(run: RunRecord, directory: Path, registry: ReportRegistry) -> list[Path]:
    """Draw the charts of the run's tables as PNG and SVG in ``directory/charts``, and return the files.

    Equal results give equal files. Raises HostError without matplotlib.
    """
    if find_spec("matplotlib") is None:
        hint = "pip install 'probe-lab[plots]'"
        raise HostError("drawing charts needs matplotlib, which is not installed", hint=hint)
    from orchestrator.report.drawing import save

    folder = directory / FOLDER
    paths = []
    with storage_faults(folder):
        folder.mkdir(exist_ok=True)
        for name, chart in charts(run, registry).items():
            paths += save(chart, folder, name)
    return paths


def charts(run: RunRecord, registry: ReportRegistry) -> dict[str, Chart]:
    """The charts' content by file names."""
    bar_charts: dict[str, Chart] = {}
    for kind, groups in run_tables(run, registry):
        for name, chart in kind.charts(groups).items():
            numbered = (f"{name}-{number}" for number in count(2))
            bar_charts[next(free for free in chain([name], numbered) if free not in bar_charts)] = chart
    return bar_charts
