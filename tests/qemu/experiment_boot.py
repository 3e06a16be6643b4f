# SPDX-License-Identifier: GPL-2.0-only
"""How does a test come by an experiment's boot, by what that needs, and by a record of a call in its own guest?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.calls.kind import KIND as CALLS
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.benchmarks.calls.preparation import CallSetup
from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.experiment import Experiment, Heading, NamedTable
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import Boot, plan
from orchestrator.guest.pausing import paused
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootArtifacts, Ready, Refused
from orchestrator.run.boot_preparation import prepare
from orchestrator.run.cell_records import without_number
from orchestrator.run.ready_guest import ReadyGuest


def boot_of(config: Path, *overrides: str) -> Boot:
    """The only boot of an experiment file, with ``KEY=VALUE`` overrides."""
    (boot,) = plan(load_experiment(config, kinds(), overrides)).boots
    return boot


def boot_of_calls(**table: object) -> Boot:
    """The only boot of a table of calls, its keys as in an experiment file."""
    named = NamedTable(None, CALLS, CallsTable.model_validate(table))
    (boot,) = plan(Experiment(Heading(name="calls"), [named])).boots
    return boot


def artifacts_of(context: BuildContext, boot: Boot) -> BootArtifacts:
    """What a boot needs, fetched and built where it is not in the cache."""
    return prepare(context, kinds().named(boot.kind), boot)


def prepared_for(ready: ReadyGuest, context: BuildContext, boot: Boot) -> ReadyGuest:
    """The test's guest as one of the boot. It rests while the host prepares."""
    with paused(ready.guest):
        return dataclasses.replace(ready, artifacts=artifacts_of(context, boot))


def call_setup(artifacts: BootArtifacts, cell: CallCell) -> tuple[CallSetup, Module]:
    """Where a cell's probe goes, and the module that arms it."""
    prepared = artifacts.cells[cell.id]
    assert isinstance(prepared, Ready), prepared
    assert isinstance(prepared.setup, CallSetup)
    assert prepared.setup.module is not None
    return prepared.setup, prepared.setup.module


def measured_call(ready: ReadyGuest, cell: CallCell) -> CellRecord:
    """A cell measured in the test's guest; where its preparation refused it, the record with the reason."""
    prepared = ready.artifacts.cells[cell.id]
    if isinstance(prepared, Refused):
        return without_number(cell, prepared.status, prepared.reason)
    return measure_call(ready, cell, prepared)
