# SPDX-License-Identifier: GPL-2.0-only
"""The experiment that measures lines of costs, its text, and the budgets of what a hit may take."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import yaml

from orchestrator.catalog.probes import (
    BASELINE,
)
from orchestrator.cost.cost_machine import MEMORY, cost_kernel
from orchestrator.cost.line import CostLine, TableKey
from orchestrator.cost.subjects import Subject
from orchestrator.errors import UsageError
from orchestrator.experiment.plan import Plan
from orchestrator.results.budgets import Budget, BudgetError

_LIMIT_OF_RUNS = 1800
"""Seconds for a cell of a command's runs: those of Python took two minutes on a host that shared its processors."""


def check_names(lines: Iterable[CostLine]) -> None:
    """Raises UsageError for two files of one name: an experiment's row has its file's."""
    named: dict[str, Subject] = {}
    for subject in (line.subject for line in lines):
        other_subject = named.setdefault(subject.probe, subject)
        if other_subject.row != subject.row:
            hint = "a row has its file's name: rename one of them, or compare with a commit: --against REV"
            raise UsageError(f"{other_subject.source} and {subject.source} have one name", hint=hint)


def experiment_content(
    lines: Sequence[CostLine], name: str, kernels: Sequence[str], cpu: str, budgets: Mapping[str, object]
) -> Mapping[str, Any]:
    """The experiment that measures the lines, as the keys of a file: a table for each point with its calls."""
    contents = {table: _table(of_table, kernels) for table, of_table in _tables(lines).items()}
    return {
        "name": name,
        "kernels": list(kernels),
        "machines": [{"cpu": cpu, "memory": MEMORY}],
        **({"time_limit": _LIMIT_OF_RUNS} if any(line.is_of_runs for line in lines) else {"profile": ["symbols"]}),
        **(next(iter(contents.values())) if len(contents) == 1 else {"tables": contents}),
        **({"budgets": dict(budgets)} if budgets else {}),
    }


def experiment_text(content: Mapping[str, Any]) -> str:
    """An experiment's content as YAML."""
    written: str = yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=110)
    return written


def planned_lines(lines: Sequence[CostLine], plan: Plan) -> Sequence[CostLine]:
    """The lines with the ids of their cells in the plan of their experiment."""
    tables = _tables(lines)
    names = {line.table: None if len(tables) == 1 else name for name, same in tables.items() for line in same}

    def cells(line: CostLine) -> Mapping[str, str]:
        row = names[line.table], line.subject.probe
        there = [cell for cell in plan.cells if (cell.table, cell.probe) == row]
        by_kernel = {cell.spec.name: cell.id for cell in there}
        return {kernel: by_kernel[cost_kernel(kernel).name] for kernel in line.kernels}

    return [replace(line, cells=cells(line)) for line in lines]


def _tables(lines: Iterable[CostLine]) -> Mapping[str, Sequence[CostLine]]:
    """The lines of each table, by its name."""
    tables: dict[TableKey, list[CostLine]] = {}
    for line in lines:
        tables.setdefault(line.table, []).append(line)
    return {_table_name(table, tables): table for table in tables.values()}


def _table(lines: Sequence[CostLine], kernels: Sequence[str]) -> Mapping[str, object]:
    first = lines[0]
    return {
        **({} if first.kernels == tuple(kernels) else {"kernels": list(first.kernels)}),
        **({} if first.image is None else {"image": first.image}),
        **({"kernel_modules": [*first.modules]} if first.modules else {}),
        **({} if first.point is None else {"points": [first.point]}),
        **({"profile": ["symbols", "stacks"]} if first.is_anywhere else {}),
        "probes": [BASELINE, *(line.subject.row for line in lines)],
        "benchmark": dict(first.benchmark),
    }


def _table_name(lines: Sequence[CostLine], tables: Iterable[TableKey]) -> str:
    key = lines[0].table
    name = _name_of_place(key)
    alike = [table for table in tables if _name_of_place(table) == name]
    return name if len(alike) == 1 else f"{name}-{alike.index(key) + 1}"


def _name_of_place(table: TableKey) -> str:
    """What tables of one point, or of points that are cut alike, are called."""
    point, _, image, _ = table
    suffix = "" if image is None or "/" in image else image.removeprefix("debian-amd64")
    return re.sub("[^a-z0-9]+", "-", str(point).rpartition("/")[2].lower()).strip("-")[:40] + suffix


_MOST_OF_HIT = 10**9


def budget_of_hit(at_most: str | float) -> Budget:
    """The budget of a hit; a number alone is a limit. Raises UsageError for what is no budget."""
    text = at_most if isinstance(at_most, str) else f"{Decimal(str(at_most)):f}"
    try:
        budget = Budget.of(text)
    except BudgetError as error:
        raise UsageError(str(error), where="--at-most", hint="for example --at-most 300") from None
    if budget.counted is not None and not budget.more:
        budget = Budget(limit=budget.counted)
    if budget.most is not None and budget.most >= _MOST_OF_HIT:
        raise UsageError(f"found {text!r}; the limit of a hit is below 10^9", where="--at-most")
    return budget


def allowed(lines: Sequence[CostLine], of_hit: Budget) -> Mapping[str, object]:
    """Budgets of calls that give each line's hit this budget."""
    return {
        f"probe={line.subject.probe},kernel={kernel}": {"overhead": str(of_hit.times(line.hits))}
        for line in lines
        for kernel in dict.fromkeys(cost_kernel(kernel).name for kernel in line.kernels)
    }
