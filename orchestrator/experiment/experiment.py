# SPDX-License-Identifier: GPL-2.0-only
"""An experiment: its heading and tables, and copies of it on other kernels or with profiles."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, get_args

import yaml
from pydantic import BeforeValidator, Field

from orchestrator.catalog.data import choices_sentence
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.kernels import placed
from orchestrator.catalog.words import ProfilePartWanted
from orchestrator.errors import UsageError
from orchestrator.experiment import fields
from orchestrator.experiment.fields import Strict
from orchestrator.experiment.problems import Problem, TableOrigin, conflict, error_of_tables
from orchestrator.experiment.source import Quoted
from orchestrator.experiment.table import Table
from orchestrator.experiment.table_kind import TableKind
from orchestrator.paths import user_path
from orchestrator.results.budgets import KEY as BUDGETS
from orchestrator.results.budgets import BudgetError, Budgets

TABLES = "tables"
"""Several tables by name, each a mapping of a table's keys; at most 100.

A table's keys beside ``tables`` are defaults: a table's own value replaces them, and ``benchmark`` and ``kernel_for``
are merged key by key. Without ``tables`` the file is one table.
"""


def _budgets(value: object) -> object:
    """Budgets by filters of cells: ``+N``, ``+N%``, ``<=N``, ``N +N%``, or ``{value: <=N, overhead: +N}``."""
    try:
        return Budgets.of(value).plain()
    except BudgetError as error:
        raise conflict([Problem(path, sentence) for path, sentence in error.problems]) from None


class Heading(Strict):
    """The keys of an experiment outside its tables."""

    name: Annotated[str, BeforeValidator(fields.name)]
    """The experiment's name, by which runs, histories and baselines are found."""
    description: Annotated[str | None, BeforeValidator(fields.description)] = None
    """What the experiment is for; has no effect."""
    charts: bool = False
    """Draw charts at the end of a run, as PNG and SVG in the run's directory."""
    budgets: Annotated[dict[str, Any], BeforeValidator(_budgets)] = Field(default_factory=dict)
    """Limits of the cells' cost, or of its growth against another run, above which ``./lab compare`` exits with 1.

    ``+N`` is growth in the cell's unit, ``+N%`` growth in per cent, ``<=N`` a limit in the unit, ``N +N%`` growth of a
    counted N. N may have decimals, and is compared exactly. The last filter that matches a cell counts. A cell without
    a budget may not grow. A resumed run may have other budgets.
    """


@dataclass(frozen=True)
class NamedTable:
    """A table with its benchmark kind; ``name`` is None for an experiment's only table.

    ``origin`` is its place in the file, None for a table from elsewhere.
    """

    name: str | None
    kind: TableKind
    table: Table
    origin: TableOrigin | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Experiment:
    """An experiment, checked, with every default filled in."""

    heading: Heading
    tables: Sequence[NamedTable]

    @property
    def name(self) -> str:
        return self.heading.name

    @property
    def charts(self) -> bool:
        return self.heading.charts

    @property
    def budgets(self) -> Budgets:
        return Budgets.of(self.heading.budgets)

    def resolved_yaml(self) -> str:
        budgets = {BUDGETS: self.heading.budgets} if self.heading.budgets else {}
        return _yaml(self._measured() | budgets)

    def digest(self) -> str:
        """SHA-256 of the resolved experiment without budgets, in hex: equal experiments have equal digests."""
        return hashlib.sha256(_yaml(self._measured()).encode()).hexdigest()

    def _measured(self) -> dict[str, Any]:
        plain: dict[str, Any] = self.heading.model_dump(mode="json", exclude={BUDGETS})
        if [table.name for table in self.tables] == [None]:
            plain |= self.tables[0].table.resolved()
        else:
            plain[TABLES] = {table.name: table.table.resolved() for table in self.tables}
        return plain


class _Dumper(yaml.SafeDumper):
    """Writes plain values, and ``Quoted`` texts in quotes."""


_Dumper.add_representer(
    Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="'")
)


def _yaml(plain: dict[str, Any]) -> str:
    written: str = yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
    )
    return written


def on_kernels(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """The experiment with all cells of all tables on each of these kernels; ``kernel_for`` is dropped.

    A kernel is a catalogue name or a path. Raises ConfigError for one that does not exist or does not run on a table's
    machines, UsageError where two names are the same kernel.
    """
    kernels = tuple(map(kernel_name, names))
    known: dict[str, str] = {}
    for given, name in zip(names, kernels, strict=True):
        first = known.setdefault(kernel_spec(name).name, given)
        if first != given or kernels.count(name) > 1:
            raise UsageError(f"{' and '.join(names)} are the same kernel", hint="name two different ones")
    update = {"kernels": kernels, "kernel_for": {}}
    tables = [replace(table, table=table.table.model_copy(update=update)) for table in experiment.tables]
    problems = [(table.origin, problem) for table in tables for problem in table.table.conflicts()]
    if problems:
        raise error_of_tables(problems)
    return replace(experiment, tables=tables)


def kernel_name(name: str) -> str:
    """A kernel's name as in tables: a path, relative to the current folder, becomes absolute."""
    return placed(name, lambda path: str(user_path(path)))


KEY = "profile"
"""The key of tables whose benchmark kind has profiles."""


def with_profile(experiment: Experiment, parts: Sequence[str]) -> Experiment:
    """The experiment with these profile parts in each table that supports them. Raises UsageError if none does."""
    known = get_args(ProfilePartWanted)
    for part in parts:
        if part not in known:
            hint = "repeat the option: --profile symbols --profile stacks" if "," in part else ""
            raise UsageError(f"found '{part}'; {choices_sentence(part, known)}", where="--profile", hint=hint)
    reasons = unprofiled(experiment, parts)
    if len(reasons) == len(experiment.tables):
        why = "a profile needs clock 'instructions', and work whose instructions the clock can prove (docs/profiles.md)"
        raise UsageError(f"no table of experiment '{experiment.name}' can have a profile", detail=reasons, hint=why)
    pairs = [(table, _profiled(table.table, parts)) for table in experiment.tables]
    tables = [
        named_table if isinstance(table, str) else replace(named_table, table=table) for named_table, table in pairs
    ]
    return replace(experiment, tables=tables)


def with_symbols(experiment: Experiment) -> Experiment:
    """The experiment with a profile by symbol in each table that supports one."""
    is_possible = len(unprofiled(experiment, ["symbols"])) < len(experiment.tables)
    return with_profile(experiment, ["symbols"]) if is_possible else experiment


def only_profiled(experiment: Experiment) -> Experiment:
    """The experiment without the tables that request no profile."""
    return replace(experiment, tables=[table for table in experiment.tables if getattr(table.table, KEY, None)])


def unprofiled(experiment: Experiment, parts: Sequence[str]) -> Sequence[str]:
    """One sentence for each table that supports none of these profile parts."""
    tables = {table.name: _profiled(table.table, parts) for table in experiment.tables}
    names = {name: f"table {name}" if name else "the table" for name in tables}
    return [f"no profile of {names[name]}: {why}" for name, why in tables.items() if isinstance(why, str)]


def _profiled(table: Table, parts: Sequence[str]) -> Table | str:
    """The table with those of the parts that it supports; a sentence where it supports none."""
    known, asked = type(table).PROFILE_PARTS, list(dict.fromkeys(parts))
    possible = tuple(part for part in asked if part in known)
    if not possible:
        of_these = f" of {', '.join(asked)}" if known else ""
        return f"benchmark '{table.benchmark.name}' has none{of_these}"
    profiled = table.model_copy(update={KEY: possible})
    return next((problem.sentence for problem in profiled.conflicts() if problem.path == (KEY,)), profiled)
