# SPDX-License-Identifier: GPL-2.0-only
"""Filters of cells by their names: the words of ``--only`` and of an experiment's budgets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from orchestrator.catalog.spelling import unknown
from orchestrator.results.contract import CellRecord

KEYS = ("table", "cpu", "kernel", "point", "probe", "handler", "benchmark", "id")

_OF_COMMAS = (
    "conditions with a comma between them must all hold; to select more cells repeat the option: "
    "--only A --only B; '?' stands for a comma in a name"
)

NameOf = Callable[[str], str]
"""A cell's name by each of ``KEYS``; empty where it has none."""


class FilterError(ValueError):
    """The text is no filter; the message says why, ``example`` is one. ``hint`` is what to do with ``--only``."""

    def __init__(self, what: str, *, example: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.example = example
        self.hint = hint or (f"for example --only {example}" if example else "")


@dataclass(frozen=True)
class Term:
    """A pattern of file names (``*``, ``?``, ``[...]``) that any of these keys may match."""

    keys: tuple[str, ...]
    pattern: str


@dataclass(frozen=True)
class CellFilter:
    """Terms that must all hold: ``probe=djprobe,cpu=pentium4``; a bare pattern is for any key."""

    text: str
    terms: Sequence[Term]

    @classmethod
    def of(cls, text: str) -> CellFilter:
        """Read a filter. Raises FilterError."""
        terms = []
        for part in text.split(","):
            key, equals, pattern = (piece.strip() for piece in part.partition("="))
            if not equals:
                key, pattern = "", key
            if not pattern:
                raise FilterError("expected PATTERN or KEY=PATTERN", example="probe=djprobe,cpu=pentium4")
            if equals and key not in KEYS:
                raise FilterError(unknown("key", key, KEYS), hint=_OF_COMMAS if "," in text else "")
            terms.append(Term((key,) if equals else KEYS, pattern))
        return cls(text, terms)

    @property
    def remark(self) -> str:
        """What to say of a filter that matches nothing; empty where it is one pattern."""
        return _OF_COMMAS if len(self.terms) > 1 else ""

    def matches(self, name_of: NameOf) -> bool:
        """Whether the cell with these names is meant."""
        return all(any(fnmatchcase(name_of(key), term.pattern) for key in term.keys) for term in self.terms)


def names_of(cell: CellRecord) -> NameOf:
    """The names of a stored cell."""
    names = {
        "table": cell.table or "",
        "cpu": cell.cpu,
        "kernel": cell.kernel,
        "point": str(cell.parameters.get("at", "")),
        "probe": cell.probe,
        "handler": cell.handler,
        "benchmark": cell.benchmark,
        "id": cell.id,
    }
    return names.__getitem__
