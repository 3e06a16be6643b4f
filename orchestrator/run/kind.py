# SPDX-License-Identifier: GPL-2.0-only
"""What a kind of benchmark is to a run: it prepares its cells, measures them in guests, and compares their records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.experiment.cell import Cell
from orchestrator.experiment.kind import TableKind
from orchestrator.results.contract import CellRecord

if TYPE_CHECKING:
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.cache import Artifact
    from orchestrator.artifacts.kernels import Kernel
    from orchestrator.run.boot import Session
    from orchestrator.run.preparation import Prepared


Obtain = Callable[[str, Mapping[str, object], str, "Callable[[Path], None]"], "Artifact | None"]
"""Where artifacts come from: ``Cache.obtain``, or what gives only those that are there."""


class BenchmarkKind(TableKind):
    """A kind of benchmark, from its tables to its records.

    ``prepare`` and ``measure`` may run in different processes, and on different machines: what the one makes for the
    other is named by content in the cache.
    """

    def find(self, context: BuildContext, table: Any, obtain: Obtain) -> Any:
        """The table with what its cells depend on and only a guest can tell, kept as artifacts; most have nothing such.

        Where ``obtain`` has no artifact, what it would tell is left out.
        """
        del context, obtain
        return table

    def refused_points(self, kernel: Kernel, cells: Sequence[Cell[Any]]) -> Mapping[str, str]:
        """Why points that cells name cannot have what the cells put there, by the cells' ids, as far as it is known.

        The cells that ``prepare`` refuses for it: nothing is built or started to find out.
        """
        del kernel, cells
        return {}

    @abstractmethod
    def prepare(self, context: BuildContext, kernel: Kernel, cells: Sequence[Cell[Any]]) -> Mapping[str, Prepared[Any]]:
        """Fetch and build what the cells of one boot need, by their ids. Raises HostError where nothing can be."""

    @abstractmethod
    def measure(self, session: Session, cells: Sequence[Cell[Any]]) -> Generator[CellRecord, None, None]:
        """Measure cells that are ready, in one guest, and yield each one's record as soon as it is complete.

        ``session.begin`` is called for each cell before its work. A record that failed and is not in
        ``session.harmless``, or an error that is raised, ends the guest; cells without a record are measured in
        another one.
        """

    def compare(self, cell: Cell[Any], record: CellRecord, others: Sequence[CellRecord]) -> CellRecord:
        """The record with what follows from those of ``cell.compared_with``: as many of them as have numbers.

        It touches no guest. Raises EvidenceError where the comparison proves the record wrong.
        """
        del cell, others
        return record
