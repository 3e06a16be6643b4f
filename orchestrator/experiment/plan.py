# SPDX-License-Identifier: GPL-2.0-only
"""The plan of an experiment: its cells in order, grouped by boot, and the selection of ``--only``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from orchestrator.catalog.data import nearest
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import ConfigError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.experiment.problems import DataOrigins, Problem, config_error
from orchestrator.plain_text import cut
from orchestrator.results.budgets import KEY
from orchestrator.results.cell_filters import KEYS, CellFilter, FilterError, NameOf
from orchestrator.results.contract import Clock

MAX_CELLS = 10_000


@dataclass(frozen=True)
class Boot:
    """A guest to boot once, and the cells measured in it, baselines first; all of the benchmark kind named ``kind``."""

    kind: str
    guest: GuestSpec
    clock: Clock
    kernel_modules: tuple[str, ...]
    cells: tuple[Cell[Any], ...]

    def without_kernel_modules(self) -> Boot:
        """The same boot without the kernel's own modules."""
        return replace(self, guest=self.guest.model_copy(update={"kernel_modules": False}), kernel_modules=())

    @property
    def spec(self) -> KernelSpec:
        return self.cells[0].spec

    @property
    def profile(self) -> frozenset[ProfilePart]:
        return frozenset(part for cell in self.cells for part in cell.profile)


@dataclass(frozen=True)
class Plan:
    """All of an experiment's cells, grouped by boot, in the file's order."""

    boots: tuple[Boot, ...]

    @property
    def cells(self) -> tuple[Cell[Any], ...]:
        return tuple(cell for boot in self.boots for cell in boot.cells)


def plan(experiment: Experiment) -> Plan:
    """Plan an experiment; tables of one benchmark kind on the same machine and kernel share a boot.

    Each boot gets a baseline, which overheads are computed from. Raises ConfigError for more than MAX_CELLS cells, and
    for two cells of one id.
    """
    # An iterator, because a table of a few lines can have millions of cells.
    every_cell = (
        (table.kind, cell) for table in experiment.tables for cell in table.kind.cells(table.name, table.table)
    )
    pairs = list(islice(every_cell, MAX_CELLS + 1))
    if len(pairs) > MAX_CELLS:
        raise ConfigError(
            f"experiment '{experiment.name}' has more than {MAX_CELLS} cells, baselines included",
            hint="split it into several files",
        )
    boots: dict[tuple[object, ...], tuple[str, list[Cell[Any]]]] = {}
    for kind, cell in pairs:
        key = (kind.name, *machine_key(cell), kind.boot_key(cell))
        boots.setdefault(key, (kind.name, []))[1].append(cell)
    planned = Plan(tuple(Boot(name, *machine_key(cells[0]), tuple(cells)) for name, cells in boots.values()))
    twice = next((id_ for id_, number in Counter(cell.id for cell in planned.cells).items() if number > 1), None)
    if twice is not None:
        raise ConfigError(
            f"experiment '{experiment.name}' has two cells with the id {twice}",
            hint="name each build tree once, by its folder or its image, and give each of your files its own name",
        )
    return planned


def machine_key(cell: Cell[Any]) -> tuple[GuestSpec, Clock, tuple[str, ...]]:
    """What a boot shares with its cells, in the order of Boot's fields after ``kind``."""
    return cell.guest, cell.clock, cell.kernel_modules


def select(plan: Plan, filters: Sequence[str]) -> Plan:
    """Select the cells that any filter matches, with their baselines; without filters, all cells.

    A filter is ``KEY=PATTERN``, a ``PATTERN`` for any key, or several of these joined by commas, which must all match;
    patterns are those of file names (``*``, ``?``, ``[...]``). Raises ConfigError for an unknown key and for a filter
    that matches no cell.
    """
    if not filters:
        return plan
    cells = plan.cells
    selected: set[str] = set()
    for text in filters:
        try:
            wanted_cells = CellFilter.of(text)
        except FilterError as error:
            raise ConfigError(str(error), where=_place(text), hint=error.hint) from None
        matched = {cell.id for cell in cells if wanted_cells.matches(names_of(cell))}
        if not matched:
            raise _no_match(wanted_cells, cells)
        selected |= matched
    selected |= {compared for cell in cells if cell.id in selected for compared in cell.compared_with}
    boots = (replace(boot, cells=tuple(cell for cell in boot.cells if cell.id in selected)) for boot in plan.boots)
    return replace(plan, boots=tuple(boot for boot in boots if boot.cells))


def names_of(cell: Cell[Any]) -> NameOf:
    """A cell's values for the keys of filters."""
    return {**{key: str(getattr(cell, key) or "") for key in KEYS}, "kernel": cell.spec.name}.__getitem__


def _meant(cell_filter: CellFilter, cells: Sequence[Cell[Any]]) -> str:
    guesses: list[str] = []
    names = [names_of(cell) for cell in cells]
    for keys, pattern in cell_filter.terms:
        guess = nearest(pattern, [name_of(key) for key in keys if key != "id" for name_of in names])
        if guess and guess not in (pattern, *guesses):
            guesses.append(guess)
    quoted = " and ".join(f"'{guess}'" for guess in guesses)
    return f"did you mean {quoted}?" if guesses else ""


def _no_match(cell_filter: CellFilter, cells: Sequence[Cell[Any]]) -> ConfigError:
    of_cells = [names_of(cell) for cell in cells]
    names = {key: list(dict.fromkeys(name_of(key) for name_of in of_cells)) for key in KEYS if key != "id"}
    for key in ("table", "point"):
        if names[key] == [""]:
            del names[key]
    hint = _meant(cell_filter, cells) or cell_filter.remark or "choose among the names above"
    detail = [f"{key}: {', '.join(values)}" for key, values in names.items()]
    return ConfigError("no cell matches", where=_place(cell_filter.text), detail=detail, hint=hint)


def _place(text: str) -> str:
    short = cut(text, 80, "...")
    return "--only " + (short if short and short.isprintable() else ascii(short))


def check_budgets(experiment: Experiment, plan: Plan) -> None:
    """Raise ConfigError for budgets that match no cell of the plan, such as a misspelt one."""
    names = [names_of(cell) for cell in plan.cells]
    problems = [
        Problem((KEY, cell_filter.text), "; ".join(filter(None, ["no cell matches", _meant(cell_filter, plan.cells)])))
        for cell_filter, _ in experiment.budgets.entries
        if not any(cell_filter.matches(name) for name in names)
    ]
    if problems:
        origin = next((table.origin for table in experiment.tables if table.origin is not None), None)
        file, origins = (origin.file, origin.origins) if origin is not None else ("", DataOrigins({}))
        raise config_error(problems, origins, file)
