# SPDX-License-Identifier: GPL-2.0-only
"""The benchmark kinds in order, each loaded when it is asked for, and what they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from orchestrator.experiment.table_kind import BenchmarkEntry, TableKind

NamedT = TypeVar("NamedT")


class _NamesOfKinds(Mapping[str, NamedT]):
    """What the kinds name, of all kinds; a name is looked up in one kind after the other, until one has it."""

    def __init__(self, kinds: Iterable[TableKind], names_of: Callable[[TableKind], Mapping[str, NamedT]]) -> None:
        self._kinds, self._names_of = kinds, names_of

    def __getitem__(self, name: str) -> NamedT:
        for kind in self._kinds:
            names = self._names_of(kind)
            if name in names:
                return names[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for kind in self._kinds for name in self._names_of(kind))

    def __len__(self) -> int:
        return sum(1 for _ in self)


KindT = TypeVar("KindT", bound=TableKind, covariant=True)


class KindRegistry(Generic[KindT]):
    """The benchmark kinds, in order, each loaded when it is asked for. Tables that name no benchmark are of the first.

    The code of a kind is large: an experiment of the first kind is read without that of the others.
    """

    def __init__(self, loads: Sequence[Callable[[], KindT]]) -> None:
        self.loads = loads
        """What returns each kind, and imports its code if that is not yet done."""

    def __iter__(self) -> Iterator[KindT]:
        return (load() for load in self.loads)

    @property
    def first(self) -> KindT:
        return self.loads[0]()

    def of_benchmark(self, name: object) -> KindT | None:
        return next((kind for kind in self if name in kind.benchmarks()), None) if isinstance(name, str) else None

    def named(self, name: str) -> KindT:
        for kind in self:
            if kind.name == name:
                return kind
        raise KeyError(name)

    @property
    def benchmarks(self) -> Mapping[str, BenchmarkEntry]:
        return _NamesOfKinds(self, lambda kind: kind.benchmarks())

    @property
    def rows(self) -> Mapping[str, str]:
        return _NamesOfKinds(self, lambda kind: kind.rows())

    def has_key(self, key: str) -> bool:
        """Whether the tables of a kind have this key."""
        return any(key in kind.table.model_fields for kind in self)

    @property
    def table_keys(self) -> Sequence[str]:
        return list(dict.fromkeys(key for kind in self for key in kind.table.model_fields))
