# SPDX-License-Identifier: GPL-2.0-only
"""The report's interface to a kind of benchmark, and the registry that finds a record's kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from orchestrator.report.chart import Chart
from orchestrator.report.findings import Finding
from orchestrator.report.panel import Group, Panel
from orchestrator.report.plain import PlainReport
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord


class KindReport(Protocol):
    """How the cells of one kind of benchmark are grouped, printed and drawn.

    Cells with one key are split into panels; panels that join become a group; a group is one table and its charts.
    """

    def owns(self, benchmark: str) -> bool:
        """Whether records of the benchmark of this name are of this kind."""
        ...

    def apart(self, cell: CellRecord) -> Hashable:
        """Return the kind's part of the cell's key; table, machine, benchmark, metric and clock are always in it."""
        ...

    def panels(self, cells: Sequence[CellRecord]) -> Iterable[Panel]:
        """Return cells of one key as panels: one for each kernel (``by_kernel``), or one across kernels."""
        ...

    def joins(self, panel: Panel, group: Group) -> bool:
        """Whether the panel is printed in one table with the group, which is of this kind too."""
        ...

    def sheet(self, group: Group) -> Sheet:
        """Return the group as a table."""
        ...

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return sentences on what the group shows, of which a run prints the three most important ones."""
        ...

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return the group's charts by their files' names, without suffixes; empty where there is nothing to draw."""
        ...


@dataclass(frozen=True)
class ReportRegistry:
    """The known kinds; a benchmark belongs to the first one that owns it."""

    kinds: Sequence[KindReport]

    def kind_of(self, cell: CellRecord) -> KindReport:
        """Return the record's kind, or the plain one for the benchmark of another version."""
        return next((kind for kind in self.kinds if kind.owns(cell.benchmark)), _PLAIN)


_PLAIN = PlainReport()
