# SPDX-License-Identifier: GPL-2.0-only
"""Cells of many probes by kernel, mechanism and number of probes, and the growth of their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from orchestrator.benchmarks.scaling import scaling_parameters
from orchestrator.benchmarks.scaling.rows import scaling_row
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.columns import Columns, Figure
from orchestrator.report.figures import NOTHING, figure
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Row
from orchestrator.report.table_report import CellGroup
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import Growth, growth

KernelColumns = Columns[Figure[str]]
"""Columns of kernels: a row is a function of the kernel."""

CurvePoints = list[tuple[float, float]]


@dataclass(frozen=True)
class ScalingCells:
    """The cells of one machine and benchmark, by kernel, row and number of probes."""

    cells: Sequence[CellRecord]

    @classmethod
    def of(cls, groups: Sequence[CellGroup]) -> ScalingCells:
        return cls([cell for group in groups for cell in group.cells])

    @cached_property
    def kernels(self) -> list[str]:
        """The kernels in the order of columns: without the cache first, then by the number of lists."""
        kernels = dict.fromkeys(cell.kernel for cell in self.cells)
        return sorted(kernels, key=lambda kernel: (self.cache(kernel), self.bits(kernel) or 0))

    @cached_property
    def sizes(self) -> list[int]:
        return sorted({size_of(cell) for cell in self.cells})

    @cached_property
    def _by_place(self) -> Mapping[tuple[str, str, int], CellRecord]:
        return {place_of(cell): cell for cell in self.cells}

    def cell(self, kernel: str, row: str, size: int) -> CellRecord | None:
        """One cell; the baseline's row is BASELINE."""
        return self._by_place.get((kernel, row, size))

    def across(self, row: str, size: int) -> list[CellRecord]:
        """The cells of one row and size that there are, in the order of the kernels."""
        cells = (self.cell(kernel, row, size) for kernel in self.kernels)
        return [cell for cell in cells if cell is not None]

    def bits(self, kernel: str) -> int | None:
        """The bits of a kernel's hash of kprobes; None where no cell has them."""
        known = (scaling_parameters.HASH_BITS.of(cell) for cell in self.cells if cell.kernel == kernel)
        return next((bits for bits in known if bits is not None), None)

    def cache(self, kernel: str) -> bool:
        return any(
            cell.kernel == kernel and cell.parameters.get(scaling_parameters.KPROBE_CACHE) for cell in self.cells
        )

    def totals(self, kernel: str, row: str) -> CurvePoints:
        """For each size: the number of probes, and the cost of all of them in the cells' unit."""
        return [steps[-1] for size in self.sizes if (steps := self.steps(kernel, row, size))]

    def steps(self, kernel: str, row: str, size: int) -> CurvePoints:
        """For each step of one size: the number of probes done so far, and their cost."""
        cell = self.cell(kernel, row, size)
        step = scaling_parameters.STEP.of(cell) if cell else None
        if cell is None or step is None:
            return []
        sums = accumulate(sample * step for sample in cell.samples)
        return [(float((number + 1) * step), total) for number, total in enumerate(sums)]

    def largest(self, kernel: str, row: str) -> CellRecord | None:
        cells = (self.cell(kernel, row, size) for size in reversed(self.sizes) if self.steps(kernel, row, size))
        return next(cells, None)

    def growth_by_steps(self, kernel: str, row: str) -> Growth | None:
        """Growth of the total cost at the largest size, fitted to the cost of one probe in each step.

        The errors of steps are independent, those of running sums are not. If the cost of one grows like n to the power
        of p, the total grows like n to the power of p + 1.
        """
        cell = self.largest(kernel, row)
        # The mean cost of a step is that at the middle of the step.
        fit = growth([(number + 0.5, sample) for number, sample in enumerate(cell.samples)]) if cell else None
        if fit is None:
            return None
        return Growth(1 + fit.exponent, fit.interval and (1 + fit.interval[0], 1 + fit.interval[1]))

    def overheads(self, kernel: str, row: str) -> CurvePoints:
        cells = [(size, self.cell(kernel, row, size)) for size in self.sizes]
        return [(float(size), cell.overhead) for size, cell in cells if cell and cell.overhead is not None]


def row_of(cell: CellRecord) -> str:
    """The catalogue's name of a cell's row; BASELINE for the cell without a probe."""
    return cell.probe.partition(".")[2] or BASELINE


def size_of(cell: CellRecord) -> int:
    """A cell's number of probes."""
    return scaling_parameters.PROBES.of(cell) or 0


def place_of(cell: CellRecord) -> tuple[str, str, int]:
    """The unique place of a cell in its table: kernel, row, number of probes."""
    return cell.kernel, row_of(cell), size_of(cell)


def row_title(cell: CellRecord) -> str:
    """The title of a cell's row."""
    row = scaling_row(cell.probe)
    return "baseline" if cell.probe == BASELINE else row.title if row else cell.probe


def cell_place(cell: CellRecord) -> str:
    """A cell's number of probes and kernel."""
    return f"{size_of(cell)} on {cell.kernel}"


def cell_name(cell: CellRecord) -> str:
    """A cell's row and place, for footnotes."""
    return f"{row_title(cell)}, {cell_place(cell)}"


def cost_of_one(cell: CellRecord) -> float:
    """The overhead of a hit, or the average value of a row without a baseline."""
    return (cell.value or 0.0) if cell.overhead is None else cell.overhead


def cost_figure(cell: CellRecord) -> str:
    """The cost of a hit, which is exact; the average cost of another row, to a tenth."""
    is_exact = cell.overhead is not None and scaling_parameters.STEP not in cell.parameters
    return figure(cell.overhead, cell.unit) if is_exact else f"{cost_of_one(cell):.1f}"


def cost_or_status(cell: CellRecord | None, footnotes: Footnotes) -> str:
    """The cost of a cell, or its status with the marks of its footnotes."""
    if cell is None:
        return NOTHING
    return f"{cell.status}{footnotes.marks(cell)}" if cell.value is None else cost_figure(cell)


def growth_rows(columns: KernelColumns, label: str, growth_of: Callable[[str], Growth | None]) -> Iterator[Row]:
    """The growth exponents of a row's costs by kernel, and their intervals where known."""

    def exponent(kernel: str) -> str:
        fit = growth_of(kernel)
        return f"{fit.exponent:.3f}" if fit else NOTHING

    def interval(kernel: str) -> str:
        fit = growth_of(kernel)
        return f"{fit.interval[0]:.3f}-{fit.interval[1]:.3f}" if fit and fit.interval else ""

    yield from unless_empty(columns.row(f"  {label}", exponent))
    yield from unless_empty(columns.row("    its interval", interval))


def unless_empty(row: Row) -> Iterator[Row]:
    """The row, unless no column has a figure."""
    if not {*row.cells} <= {NOTHING, ""}:
        yield row


PER_SECOND = 1e9
"""Instructions in a second of the guest's time on the exact clock (machine.yaml: shift=0)."""
