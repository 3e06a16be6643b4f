# SPDX-License-Identifier: GPL-2.0-only
"""The interface of a benchmark kind to its tables: its benchmarks, rows, lists and cells."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from orchestrator.experiment.cell import Cell
from orchestrator.experiment.table import Table
from orchestrator.results.printed_json import Printed


@dataclass(frozen=True)
class BenchmarkEntry:
    """A benchmark as ``orchestrator list benchmarks`` shows it."""

    title: str
    entries: Sequence[str] = ()


@dataclass(frozen=True)
class Listing:
    """A list for ``orchestrator list``: the model of a row, and rows with a value for each of its keys."""

    row: type[Printed]
    rows: Callable[[], Iterable[Sequence[object]]]

    @property
    def columns(self) -> Sequence[str]:
        return tuple(self.row.model_fields)

    def objects(self) -> Sequence[Printed]:
        """The rows for programs."""
        return [self.row(**dict(zip(self.columns, values, strict=True))) for values in self.rows()]


class TableKind(ABC):
    """The tables of a benchmark kind. It has no state: a boot's task carries it to another process."""

    name: ClassVar[str]
    table: ClassVar[type[Table]]
    paths: ClassVar[Collection[str]] = ()
    """The keys of ``benchmark`` that are paths of users' files."""

    @abstractmethod
    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        """The benchmarks of this kind by name, which no other kind may share."""

    def rows(self) -> Mapping[str, str]:
        """The kind's own rows among ``probes``, with their benchmarks."""
        return {}

    def lists(self) -> Mapping[str, Listing]:
        """The lists of this kind for ``orchestrator list``, by name."""
        return {}

    @abstractmethod
    def cells(self, name: str | None, table: Any) -> Iterable[Cell[Any]]:
        """The cells of a table, in order; ``name`` is the table's, None for an experiment's only table."""

    def boot_key(self, cell: Cell[Any]) -> Hashable:
        """Cells of one machine share a boot if their keys are equal."""
        del cell
        return ()

    @abstractmethod
    def describe(self, cell: Cell[Any]) -> str:
        """A cell's amount of work as text: ``4 x 5000 calls, entry auto``."""
