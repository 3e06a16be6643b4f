# SPDX-License-Identifier: GPL-2.0-only
"""The run of a night: a new one, or the one that a night before did not end."""

from __future__ import annotations

import sys

from orchestrator.benchmarks.registry import kinds
from orchestrator.cli.measured import Measuring
from orchestrator.errors import UsageError
from orchestrator.experiment.budgeted import check_budgets
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.plan import Plan, plan
from orchestrator.results.night_note import NightNote
from orchestrator.results.runs import Run
from orchestrator.results.store import RunEntry
from orchestrator.run.runner import Runner, check_resumable, check_same_cells


def night_run(experiment: Experiment, measuring: Measuring, note: NightNote) -> Run:
    """Measure what the night has not measured yet. Raises LabError where nothing can be measured."""
    found = measuring.found(experiment)
    planned = plan(found)
    check_budgets(found, planned)

    def work(runner: Runner) -> RunEntry:
        begun = note.run(runner.store, experiment.name)
        if begun is not None and begun.status == "complete":
            print(f"run {begun.id} was measured, and not told yet", file=sys.stderr)
            return begun
        if begun is not None:
            resumed = _resumed(runner, begun, found, planned)
            if resumed is not None:
                return resumed
        note.begin()
        return runner.run(found, planned, None)

    entry, record = measuring.done(work)
    return Run(record, entry.directory)


def _resumed(runner: Runner, begun: RunEntry, experiment: Experiment, planned: Plan) -> RunEntry | None:
    """The run, gone on with; None where it was begun with something else than what is there now."""
    try:
        check_resumable(begun, experiment, kinds())
        check_same_cells(begun, runner.store.unfinished_cells(begun.id), planned)
        print(f"going on with run {begun.id}, which was interrupted", file=sys.stderr)
        return runner.resume(begun, planned)
    except UsageError as error:
        print(f"run {begun.id} was interrupted, and cannot be gone on with: {error}", file=sys.stderr)
        return None
