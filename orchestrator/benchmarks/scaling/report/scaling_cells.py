# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a benchmark of many probes, by kernel, row and number of probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from orchestrator.catalog.probes import BASELINE
from orchestrator.report.panel import Group
from orchestrator.results.contract import CellRecord
from orchestrator.results.growth import Growth, growth


@dataclass(frozen=True)
class ScalingCells:
    """The cells of one machine and benchmark, by kernel, row and number of probes."""

    cells: Sequence[CellRecord]

    @classmethod
    def of(cls, group: Group) -> ScalingCells:
        """The cells of panels that are printed together."""
        return cls([cell for panel in group for cell in panel.cells])

    @property
    def kernels(self) -> list[str]:
        """The kernels: those without a cache first, of these the one with the fewest lists."""
        found = dict.fromkeys(cell.kernel for cell in self.cells)
        return sorted(found, key=lambda kernel: (self.cache(kernel), self.bits(kernel) or 0))

    @property
    def sizes(self) -> list[int]:
        """The numbers of probes, rising."""
        return sorted({size_of(cell) for cell in self.cells})

    def cell(self, kernel: str, row: str, size: int) -> CellRecord | None:
        """One cell; the baseline's row is BASELINE."""
        for one in self.cells:
            if one.kernel == kernel and row_of(one) == row and size_of(one) == size:
                return one
        return None

    def bits(self, kernel: str) -> int | None:
        """How many bits a kernel's hash of kprobes has, as it was built; None where no cell has it."""
        found = self._fact(kernel, "hash_bits")
        return found if isinstance(found, int) else None

    def cache(self, kernel: str) -> bool:
        """Whether the kernel has the cache."""
        return bool(self._fact(kernel, "kprobe_cache"))

    def totals(self, kernel: str, row: str) -> list[tuple[float, float]]:
        """For each size: the number of probes, and the cost of all of them in the cells' unit."""
        return [steps[-1] for size in self.sizes if (steps := self.steps(kernel, row, size))]

    def steps(self, kernel: str, row: str, size: int) -> list[tuple[float, float]]:
        """For each step of one size: the number of probes done so far, and their cost."""
        cell = self.cell(kernel, row, size)
        step = cell.parameters.get("step") if cell else None
        if cell is None or not isinstance(step, int | float):
            return []
        sums = accumulate(sample * step for sample in cell.samples)
        return [(float((number + 1) * step), total) for number, total in enumerate(sums)]

    def growth_by_steps(self, kernel: str, row: str, size: int) -> Growth | None:
        """Growth of the total cost with the number done, fitted to the cost of one in each step.

        The errors of steps are independent, those of running sums are not. A cost of one that grows like n to the
        power of p makes a total that grows like n to the power of p + 1.
        """
        cell = self.cell(kernel, row, size)
        if cell is None:
            return None
        # A step's mean cost belongs to the middle of the step, not to its end.
        found = growth([(number + 0.5, sample) for number, sample in enumerate(cell.samples)])
        if found is None:
            return None
        low, high = found.interval or (None, None)
        return Growth(1 + found.exponent, None if low is None or high is None else (1 + low, 1 + high))

    def largest(self, kernel: str, row: str) -> int | None:
        """The largest number of probes that there are figures of."""
        return next((size for size in reversed(self.sizes) if self.steps(kernel, row, size)), None)

    def growth_of_each(self, kernel: str, row: str) -> Growth | None:
        """Growth of the net cost of one with the number of probes."""
        return growth(
            [
                (float(size), cell.overhead)
                for size in self.sizes
                if (cell := self.cell(kernel, row, size)) and cell.overhead is not None
            ]
        )

    def _fact(self, kernel: str, name: str) -> object:
        return next(
            (cell.parameters[name] for cell in self.cells if cell.kernel == kernel and name in cell.parameters), None
        )


def row_of(cell: CellRecord) -> str:
    """The catalogue's name of a cell's row; BASELINE for the cell without a probe."""
    return cell.probe.partition(".")[2] or BASELINE


def place_of(cell: CellRecord) -> tuple[str, str, int]:
    """A cell's unique place in its table: kernel, row, number of probes."""
    return cell.kernel, row_of(cell), size_of(cell)


def size_of(cell: CellRecord) -> int:
    """A cell's number of probes."""
    size = cell.parameters.get("probes", 0)
    return int(size) if isinstance(size, int | float) else 0
