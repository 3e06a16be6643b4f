# SPDX-License-Identifier: GPL-2.0-only
"""An experiment: its heading, and its tables in order."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator

from orchestrator.experiment.file import fields
from orchestrator.experiment.file.fields import Strict
from orchestrator.experiment.file.origin import TableOrigin
from orchestrator.experiment.file.table_source import TABLES
from orchestrator.experiment.kind import TableKind
from orchestrator.experiment.table import Table


class Heading(Strict):
    """An experiment's name and description. With ``charts`` a run ends with drawing its charts."""

    name: Annotated[str, BeforeValidator(fields.name)]
    description: Annotated[str | None, BeforeValidator(fields.description)] = None
    charts: Annotated[bool, BeforeValidator(fields.truth)] = False


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

    def resolved_yaml(self) -> str:
        """Return the experiment as YAML with every default written out; it loads as an equal experiment."""
        plain: dict[str, Any] = self.heading.model_dump(mode="json")
        if [one.name for one in self.tables] == [None]:
            plain |= self.tables[0].table.resolved()
        else:
            plain[TABLES] = {one.name: one.table.resolved() for one in self.tables}
        return yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, allow_unicode=True, width=100)

    def digest(self) -> str:
        """Return the SHA-256 of the resolved experiment, in hex: equal experiments have equal digests."""
        return hashlib.sha256(self.resolved_yaml().encode()).hexdigest()
