# SPDX-License-Identifier: GPL-2.0-only
"""The interface of a kind of benchmark for the experiment file and the plan, and the registry of kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from orchestrator.experiment.cell import Cell
from orchestrator.experiment.table import Table

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class BenchmarkEntry:
    """A benchmark as ``orchestrator list benchmarks`` shows it."""

    title: str
    entries: Sequence[str] = ()


@dataclass(frozen=True)
class Listing:
    """A list that ``orchestrator list`` can print: column names, and rows of as many values."""

    columns: Sequence[str]
    rows: Callable[[], Iterable[Sequence[object]]]


class TableKind(ABC):
    """A kind of benchmark: what one table of it may contain, and which cells the table has.

    A kind has no state, so that a boot's task can carry it to another process.
    """

    name: ClassVar[str]
    table: ClassVar[type[Table]]
    aliases: ClassVar[Mapping[str, str]] = NOTHING
    """Former names of keys of ``benchmark``, each with the current name."""
    former_key: ClassVar[str | None] = None
    """What ``benchmark`` was called in tables of this kind."""
    paths: ClassVar[Collection[str]] = ()
    """Keys of ``benchmark`` that are paths of users' files."""

    @abstractmethod
    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        """The benchmarks of this kind by name; no two kinds share a name."""

    def rows(self) -> Mapping[str, str]:
        """The names allowed among ``probes`` besides the probes: each row's name, and its benchmark."""
        return NOTHING

    def lists(self) -> Mapping[str, Listing]:
        """The lists of this kind that ``orchestrator list`` can print, by name."""
        return {}

    @abstractmethod
    def cells(self, name: str | None, table: Any) -> Iterable[Cell[Any]]:
        """The cells of a table, in order; ``name`` is the table's, None where the experiment has but one."""

    def boot_key(self, cell: Cell[Any]) -> Hashable:
        """Cells of one machine with equal keys share a boot."""
        del cell
        return ()

    @abstractmethod
    def describe(self, cell: Cell[Any]) -> str:
        """A cell's amount of work as text: ``4 x 5000 calls, entry auto``."""


KindT = TypeVar("KindT", bound=TableKind, covariant=True)


class KindRegistry(Generic[KindT]):
    """The kinds of benchmark by the names of their benchmarks. The first is the default of tables that name none."""

    def __init__(self, kinds: Iterable[KindT]) -> None:
        self._kinds = tuple(kinds)
        self._by_benchmark: dict[str, KindT] = {}
        for kind in self._kinds:
            for name in kind.benchmarks():
                if name in self._by_benchmark:
                    raise ValueError(f"kinds {self._by_benchmark[name].name} and {kind.name} both have a '{name}'")
                self._by_benchmark[name] = kind

    def __iter__(self) -> Iterator[KindT]:
        return iter(self._kinds)

    @property
    def first(self) -> KindT:
        """The kind that stands for tables that name no known benchmark."""
        return self._kinds[0]

    def of_benchmark(self, name: object) -> KindT | None:
        """The kind of the benchmark with this name; None where there is none such."""
        return self._by_benchmark.get(name) if isinstance(name, str) else None

    def named(self, name: str) -> KindT:
        """The kind with this name. Raises KeyError."""
        return {kind.name: kind for kind in self._kinds}[name]

    @property
    def benchmarks(self) -> Collection[str]:
        """The names of all benchmarks, kind by kind."""
        return self._by_benchmark

    @property
    def rows(self) -> Mapping[str, str]:
        """The benchmarks by the names of their own rows."""
        return {row: benchmark for kind in self._kinds for row, benchmark in kind.rows().items()}

    @property
    def table_keys(self) -> Sequence[str]:
        """All keys that a table of any kind may have."""
        return list(dict.fromkeys(key for kind in self._kinds for key in kind.table.model_fields))


def benchmark_keys(table: type[Table]) -> Mapping[str, Any]:
    """The fields of a table's ``benchmark`` by key, as pydantic describes them."""
    model = table.model_fields["benchmark"].annotation
    fields = getattr(model, "model_fields", None)
    assert isinstance(fields, dict), f"{table.__name__}.benchmark is no model"
    return fields
