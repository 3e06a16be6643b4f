# SPDX-License-Identifier: GPL-2.0-only
"""An experiment: its heading, and its tables in order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, Field

from orchestrator.experiment.file import fields
from orchestrator.experiment.file.fields import Strict
from orchestrator.experiment.file.origin import TableOrigin
from orchestrator.experiment.file.problems import Problem, conflict
from orchestrator.experiment.file.source import Quoted
from orchestrator.experiment.file.table_source import TABLES
from orchestrator.experiment.kind import TableKind
from orchestrator.experiment.table import Table
from orchestrator.results.budgets import KEY as BUDGETS
from orchestrator.results.budgets import BudgetError, Budgets


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
        """The experiment's name."""
        return self.heading.name

    @property
    def charts(self) -> bool:
        """Whether charts are drawn at the end of a run."""
        return self.heading.charts

    @property
    def budgets(self) -> Budgets:
        """How much its cells may cost, or how much more than in another run."""
        return Budgets.of(self.heading.budgets)

    def resolved_yaml(self) -> str:
        """Return the experiment as YAML with every default written out; it loads as an equal experiment."""
        budgets = {BUDGETS: self.heading.budgets} if self.heading.budgets else {}
        return _yaml(self._measured() | budgets)

    def digest(self) -> str:
        """Return the SHA-256 of the resolved experiment, in hex: equal experiments have equal digests.

        Budgets do not count: what is measured does not depend on them.
        """
        return hashlib.sha256(_yaml(self._measured()).encode()).hexdigest()

    def _measured(self) -> dict[str, Any]:
        """All of the experiment that its cells depend on."""
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
