# SPDX-License-Identifier: GPL-2.0-only
"""Filters that select cells by their names, and cells named on a command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.catalog.data import nearest, unknown
from orchestrator.errors import UsageError
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.parameters import AT

KEYS = ("table", "cpu", "kernel", "point", "probe", "handler", "benchmark", "id")


_ABOUT_COMMAS = (
    "a cell must match all conditions separated by commas; to select more cells repeat the option: "
    "--only A --only B; write '?' for a comma in a name"
)


NameOf = Callable[[str], str]
"""A cell's value for each of ``KEYS``, or an empty text."""


class FilterError(ValueError):
    """An invalid filter; ``example`` is a valid one, ``hint`` one for ``--only``."""

    def __init__(self, what: str, *, example: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.example = example
        self.hint = hint or (f"for example --only {example}" if example else "")


@dataclass(frozen=True)
class CellFilter:
    """Terms that must all match: ``probe=djprobe,cpu=pentium4``; a bare pattern may match any key.

    A term is a sequence of keys, one of which must match, and a pattern of file names (``*``, ``?``, ``[...]``).
    """

    text: str
    terms: Sequence[tuple[Sequence[str], str]]

    @classmethod
    def of(cls, text: str) -> CellFilter:
        """Parse a filter. Raises FilterError."""
        terms: list[tuple[Sequence[str], str]] = []
        for part in text.split(","):
            key, equals, pattern = (piece.strip() for piece in part.partition("="))
            if not equals:
                key, pattern = "", key
            if not pattern:
                raise FilterError("expected PATTERN or KEY=PATTERN", example="probe=djprobe,cpu=pentium4")
            if equals and "+" in key:  # a kernel with a parameter of its own
                key, equals, pattern = "", "", part.strip()
            if equals and key not in KEYS:
                raise FilterError(unknown("key", key, KEYS), hint=_ABOUT_COMMAS if "," in text else "")
            terms.append(((key,) if equals else KEYS, pattern))
        return cls(text, terms)

    @property
    def remark(self) -> str:
        """The hint for a filter of several terms that matches nothing."""
        return _ABOUT_COMMAS if len(self.terms) > 1 else ""

    def matches(self, name_of: NameOf) -> bool:
        return all(any(fnmatchcase(name_of(key), pattern) for key in keys) for keys, pattern in self.terms)


def names_of(cell: CellRecord) -> NameOf:
    """A stored cell's values for the keys of filters."""
    values = {key: str(getattr(cell, key) or "") for key in KEYS if key != "point"}
    return {**values, "point": AT.of(cell) or ""}.__getitem__


def only(cells: Iterable[CellRecord]) -> list[str]:
    """Options of ``run`` that select exactly these cells; ``?`` stands for a comma, which would split the filter."""
    return [word for cell in cells for word in ("--only", f"id={cell.id.replace(',', '?')}")]


_SHOWN = 20


_HINT = "CELL is a cell's id, parts of it such as kprobe, or a pattern: 'bpf-*'"


_IS_FILTER = re.compile(r"[*?=\[,]")


def cells_named(run: RunRecord, name: str) -> Sequence[CellRecord]:
    """The cell with this id, the cells whose ids have all of its parts, or those that a filter matches.

    Raises UsageError if there is none.
    """
    ids = [cell.id for cell in run.cells]
    if _IS_FILTER.search(name) and not _with_parts(ids, name):
        try:
            cell_filter = CellFilter.of(name)
        except FilterError as error:
            raise UsageError(str(error), where=f"cell {name!r}", hint=error.hint) from None
        if chosen := [cell for cell in run.cells if cell_filter.matches(names_of(cell))]:
            return chosen
    chosen_ids = set(ids_named(ids, name, f"run {run.run}"))
    return [cell for cell in run.cells if cell.id in chosen_ids]


def ids_named(ids: Sequence[str], name: str, where: str) -> Sequence[str]:
    """The id ``name``, or the ids with all of its parts, which may be patterns.

    Raises UsageError if there is none; ``where`` names the owner of the ids.
    """
    matches = _with_parts(ids, name)
    if not matches:
        guess = nearest(name, list(dict.fromkeys(part for id_ in ids for part in id_.split("/"))))
        hint = f"did you mean '{guess}'?" if guess else _HINT
        raise UsageError(f"{where} has no cell '{name}'", detail=["cells:", *ids[:_SHOWN]], hint=hint)
    return matches


def _with_parts(ids: Sequence[str], name: str) -> Sequence[str]:
    if name in ids:
        return [name]
    patterns = name.split("/")
    parts = {id_: id_.split("/") for id_ in ids}
    return [id_ for id_ in ids if all(any(fnmatchcase(part, pattern) for part in parts[id_]) for pattern in patterns)]
