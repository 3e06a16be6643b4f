# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a plan that ``--only`` selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

from orchestrator.catalog.kernels import kernel
from orchestrator.catalog.spelling import nearest, unknown
from orchestrator.errors import ConfigError
from orchestrator.experiment.cell import Cell, named_point
from orchestrator.experiment.plan import Plan

_KEYS: dict[str, Callable[[Cell[Any]], str]] = {
    "table": lambda cell: cell.table or "",
    "cpu": lambda cell: cell.cpu,
    "kernel": lambda cell: kernel(cell.kernel).name,
    "point": lambda cell: named_point(cell) or "",
    "probe": lambda cell: cell.row,
    "handler": lambda cell: cell.handler,
    "benchmark": lambda cell: cell.benchmark,
    "id": lambda cell: cell.id,
}


@dataclass(frozen=True)
class _Term:
    keys: tuple[str, ...]  # any of these may match
    pattern: str

    def matches(self, cell: Cell[Any]) -> bool:
        return any(fnmatchcase(_KEYS[key](cell), self.pattern) for key in self.keys)


def select(plan: Plan, filters: Sequence[str]) -> Plan:
    """Return the plan's cells that any filter matches, and the cells that these are compared with.

    A filter is ``KEY=PATTERN`` or a bare ``PATTERN`` for any key, or several of these joined by commas, which must
    all hold; patterns are those of file names (``*``, ``?``, ``[...]``). No filter at all selects everything.
    Raises ConfigError for an unknown key and for a filter that matches no cell.
    """
    if not filters:
        return plan
    cells = plan.cells
    wanted: set[str] = set()
    for text in filters:
        terms = _terms(text)
        matched = {cell.id for cell in cells if all(term.matches(cell) for term in terms)}
        if not matched:
            raise _no_match(text, terms, cells)
        wanted |= matched
    wanted |= {other for cell in cells if cell.id in wanted for other in cell.compared_with}
    boots = (replace(boot, cells=tuple(cell for cell in boot.cells if cell.id in wanted)) for boot in plan.boots)
    return replace(plan, boots=tuple(boot for boot in boots if boot.cells))


def _terms(text: str) -> list[_Term]:
    terms = []
    for part in text.split(","):
        key, equals, pattern = (piece.strip() for piece in part.partition("="))
        if not equals:
            key, pattern = "", key
        if not pattern:
            hint = "for example --only probe=djprobe,cpu=pentium4"
            raise ConfigError("expected PATTERN or KEY=PATTERN", where=_place(text), hint=hint)
        if equals and key not in _KEYS:
            raise ConfigError(unknown("key", key, _KEYS), where=_place(text))
        terms.append(_Term((key,) if equals else tuple(_KEYS), pattern))
    return terms


def _no_match(text: str, terms: Sequence[_Term], cells: Sequence[Cell[Any]]) -> ConfigError:
    names = {key: list(dict.fromkeys(name(cell) for cell in cells)) for key, name in _KEYS.items() if key != "id"}
    for key in ("table", "point"):
        if names[key] == [""]:
            del names[key]
    guesses = []
    for term in terms:
        guess = nearest(term.pattern, [name for key in term.keys for name in names.get(key, ())])
        if guess and guess != term.pattern:
            guesses.append(f"'{guess}'")
    return ConfigError(
        "no cell matches",
        where=_place(text),
        detail=[f"{key}: {', '.join(values)}" for key, values in names.items()],
        hint=f"did you mean {' and '.join(guesses)}?" if guesses else "choose among the names above",
    )


def _place(text: str) -> str:
    short = text if len(text) <= 80 else text[:77] + "..."
    return "--only " + (short if short.isprintable() else ascii(short))
