# SPDX-License-Identifier: GPL-2.0-only
"""The tables of an experiment, as tests make them and look into them."""

from __future__ import annotations

from typing import TypeVar

from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.table import Table

QEMU_CPUS = frozenset({"Skylake-Client-IBRS", "EPYC-Milan"})
"""QEMU's own CPU models that the lab's experiments name."""

TableT = TypeVar("TableT", bound=Table)


def tables_of(experiment: Experiment, kind: type[TableT]) -> dict[str | None, TableT]:
    """All its tables by name, which are of this type."""
    return {named.name: as_kind(named.table, kind) for named in experiment.tables}


def only_table(experiment: Experiment, kind: type[TableT]) -> TableT:
    """The one table that it has."""
    (named,) = experiment.tables
    return as_kind(named.table, kind)


def as_kind(table: Table, kind: type[TableT]) -> TableT:
    """The table, which is of this type."""
    assert isinstance(table, kind)
    return table


def calls_experiment(**fields: object) -> Experiment:
    """An experiment of one table of calls, with these keys in place of some that are always right."""
    described = {
        "kernels": ["debian-686"],
        "machines": [{"cpu": "pentium4"}],
        "probes": ["none", "kprobe"],
        "benchmark": {"name": "gtodbench", "calls": 1000, "repeats": 2, "entry": "int80"},
        **fields,
    }
    return Experiment(
        Heading(name="x"), [NamedTable(None, kinds().named("calls"), CallsTable.model_validate(described))]
    )
