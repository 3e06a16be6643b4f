# SPDX-License-Identifier: GPL-2.0-only
"""The cells of a plan that ``--only`` selects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.catalog.kernels import kernel
from orchestrator.catalog.spelling import nearest
from orchestrator.errors import ConfigError
from orchestrator.experiment.cell import Cell, named_point
from orchestrator.experiment.plan import Plan
from orchestrator.results.cell_filter import CellFilter, FilterError, NameOf, Term

_NAMES: dict[str, Callable[[Cell[Any]], str]] = {
    "table": lambda cell: cell.table or "",
    "cpu": lambda cell: cell.cpu,
    "kernel": lambda cell: kernel(cell.kernel).name,
    "point": lambda cell: named_point(cell) or "",
    "probe": lambda cell: cell.row,
    "handler": lambda cell: cell.handler,
    "benchmark": lambda cell: cell.benchmark,
    "id": lambda cell: cell.id,
}


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
        wanted_cells = _filter(text)
        matched = {cell.id for cell in cells if wanted_cells.matches(names_of(cell))}
        if not matched:
            raise _no_match(wanted_cells, cells)
        wanted |= matched
    wanted |= {other for cell in cells if cell.id in wanted for other in cell.compared_with}
    boots = (replace(boot, cells=tuple(cell for cell in boot.cells if cell.id in wanted)) for boot in plan.boots)
    return replace(plan, boots=tuple(boot for boot in boots if boot.cells))


def _filter(text: str) -> CellFilter:
    try:
        return CellFilter.of(text)
    except FilterError as error:
        raise ConfigError(str(error), where=_place(text), hint=error.hint) from None


def names_of(cell: Cell[Any]) -> NameOf:
    """The names of a cell that filters match."""
    return lambda key: _NAMES[key](cell)


def nearest_names(terms: Sequence[Term], cells: Sequence[Cell[Any]]) -> list[str]:
    """Names of cells that are spelled much like a filter's patterns, which match none."""
    guesses: list[str] = []
    for term in terms:
        guess = nearest(term.pattern, [_NAMES[key](cell) for key in term.keys if key != "id" for cell in cells])
        if guess and guess not in (term.pattern, *guesses):
            guesses.append(guess)
    return guesses


def _no_match(wanted: CellFilter, cells: Sequence[Cell[Any]]) -> ConfigError:
    names = {key: list(dict.fromkeys(name(cell) for cell in cells)) for key, name in _NAMES.items() if key != "id"}
    for key in ("table", "point"):
        if names[key] == [""]:
            del names[key]
    guesses = [f"'{guess}'" for guess in nearest_names(wanted.terms, cells)]
    hint = f"did you mean {' and '.join(guesses)}?" if guesses else wanted.remark or "choose among the names above"
    return ConfigError(
        "no cell matches",
        where=_place(wanted.text),
        detail=[f"{key}: {', '.join(values)}" for key, values in names.items()],
        hint=hint,
    )


def _place(text: str) -> str:
    short = text if len(text) <= 80 else text[:77] + "..."
    return "--only " + (short if short and short.isprintable() else ascii(short))
