# SPDX-License-Identifier: GPL-2.0-only
"""An experiment: its heading and its tables; the same on other kernels or with profiles."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, get_args

import yaml
from pydantic import BeforeValidator, Field

from orchestrator.catalog.data import choices_sentence
from orchestrator.catalog.kernels import is_path, placed
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.words import ProfilePart
from orchestrator.errors import UsageError
from orchestrator.experiment import fields
from orchestrator.experiment.fields import Strict
from orchestrator.experiment.problems import Problem, TableOrigin, conflict, error_of_tables
from orchestrator.experiment.source import Quoted
from orchestrator.experiment.table import Table, TableKind
from orchestrator.paths import user_path
from orchestrator.results.budgets import KEY as BUDGETS
from orchestrator.results.budgets import BudgetError, Budgets

TABLES = "tables"
"""Several tables by name, each a mapping of keys of a table; at most 100.

The keys of a table that stand beside ``tables`` are defaults: a table's own value replaces them, and ``benchmark`` and
``kernel_for`` are merged key by key. Without ``tables`` the file is one table.
"""


def _budgets(value: object) -> object:
    """A mapping of filters of cells to ``+N``, ``+N%``, ``<=N``, or ``{value: <=N, overhead: +N}``."""
    try:
        return Budgets.of(value).plain()
    except BudgetError as error:
        raise conflict([Problem(path, sentence) for path, sentence in error.problems]) from None


class Heading(Strict):
    """What an experiment has beside its tables."""

    name: Annotated[str, BeforeValidator(fields.name)]
    """The experiment's name. Runs, histories and baselines are found by it."""
    description: Annotated[str | None, BeforeValidator(fields.description)] = None
    """What the experiment is for. Nothing depends on it."""
    charts: Annotated[bool, BeforeValidator(fields.truth)] = False
    """Draw charts at the end of a run, as PNG and SVG in the run's directory."""
    budgets: Annotated[dict[str, Any], BeforeValidator(_budgets)] = Field(default_factory=dict)
    """How much its cells may cost, or how much more than in another run, before ``./lab compare`` exits with 1.

    ``+N`` is more in the cell's unit, ``+N%`` of the figure before, ``<=N`` a limit in the unit, with up to three
    decimals. Of several filters that match a cell the last one counts. A cell without a budget may not grow. Budgets
    are part of no cell: a run that is resumed may have others.
    """


@dataclass(frozen=True)
class NamedTable:
    """A table with its kind of benchmark; ``name`` is None where the experiment has but one.

    ``origin`` is where it was read, None for a table that no file has.
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
        if [one.name for one in self.tables] == [None]:
            plain |= self.tables[0].table.resolved()
        else:
            plain[TABLES] = {one.name: one.table.resolved() for one in self.tables}
        return plain


class _Dumper(yaml.SafeDumper):
    """Writes plain values, and texts in quotes that need them."""


_Dumper.add_representer(
    Quoted, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="'")
)


def _yaml(plain: dict[str, Any]) -> str:
    written: str = yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100
    )
    return written


def on_kernels(experiment: Experiment, names: Sequence[str]) -> Experiment:
    """The experiment whose tables have all of their cells on each of these kernels, whatever ``kernel_for`` says.

    A kernel is a catalogue's name, or the path of a user's. Raises ConfigError for one that is not there or cannot run
    a table's machines, UsageError where two names are one kernel.
    """
    kernels = tuple(map(kernel_name, names))
    known: dict[str, str] = {}
    for given, name in zip(names, kernels, strict=True):
        other = known.setdefault(kernel_spec(name).name, given)
        if other != given or kernels.count(name) > 1:
            raise UsageError(f"{' and '.join(names)} are the same kernel", hint="name two different ones")
    update = {"kernels": kernels, "kernel_for": {}}
    tables = [replace(one, table=one.table.model_copy(update=update)) for one in experiment.tables]
    problems = [(one.origin, problem) for one in tables for problem in one.table.conflicts()]
    if problems:
        raise error_of_tables(problems)
    return replace(experiment, tables=tables)


def kernel_name(name: str) -> str:
    """A kernel's name as tables have it: paths, which are relative to the current folder, are absolute."""
    return placed(name, lambda path: str(user_path(path))) if is_path(name) else name


KEY = "profile"
"""The key of tables whose kind of benchmark has profiles."""


def with_profile(experiment: Experiment, parts: Sequence[str]) -> Experiment:
    """The experiment with these profiles wherever they can be proved. Raises UsageError where they nowhere can."""
    known = get_args(ProfilePart)
    for part in parts:
        if part not in known:
            hint = "name each by an option of its own: --profile symbols --profile stacks" if "," in part else ""
            raise UsageError(f"found '{part}'; {choices_sentence(part, known)}", where="--profile", hint=hint)
    reasons = unprofiled(experiment, parts)
    if len(reasons) == len(experiment.tables):
        why = "a profile needs clock 'instructions', and work whose instructions the clock can prove (docs/profiles.md)"
        raise UsageError(f"no table of experiment '{experiment.name}' can have a profile", detail=reasons, hint=why)
    found = [(one, _profiled(one.table, parts)) for one in experiment.tables]
    tables = [one if isinstance(table, str) else replace(one, table=table) for one, table in found]
    return replace(experiment, tables=tables)


def with_symbols(experiment: Experiment) -> Experiment:
    """The experiment with the instructions of its cells by symbol, wherever they can be proved."""
    is_possible = len(unprofiled(experiment, ["symbols"])) < len(experiment.tables)
    return with_profile(experiment, ["symbols"]) if is_possible else experiment


def only_profiled(experiment: Experiment) -> Experiment:
    """The experiment without the tables whose cells have no profiles."""
    return replace(experiment, tables=[one for one in experiment.tables if getattr(one.table, KEY, None)])


def unprofiled(experiment: Experiment, parts: Sequence[str]) -> Sequence[str]:
    """A sentence for each table that can have no profile of these parts."""
    found = {one.name: _profiled(one.table, parts) for one in experiment.tables}
    names = {name: f"table {name}" if name else "the table" for name in found}
    return [f"no profile of {names[name]}: {why}" for name, why in found.items() if isinstance(why, str)]


def _profiled(table: Table, parts: Sequence[str]) -> Table | str:
    """The table with what its cells can have of these parts; a sentence where that is nothing."""
    known, asked = type(table).PROFILE_PARTS, list(dict.fromkeys(parts))
    possible = tuple(part for part in asked if part in known)
    if not possible:
        of_these = f" of {', '.join(asked)}" if known else ""
        return f"benchmark '{table.benchmark.name}' has none{of_these}"
    profiled = table.model_copy(update={KEY: possible})
    return next((problem.sentence for problem in profiled.conflicts() if problem.path == (KEY,)), profiled)
