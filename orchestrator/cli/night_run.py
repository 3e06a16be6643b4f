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
from orchestrator.run.runner import Runner, check_resumable


def night_run(experiment: Experiment, measuring: Measuring, note: NightNote) -> Run:
    """Measure what the night has not measured yet. Raises LabError where nothing can be measured."""
    found = measuring.found(experiment)
    planned = plan(found)
    check_budgets(found, planned)

    def work(runner: Runner) -> RunEntry:
        for begun in note.runs(runner.store, experiment.name, [cell.id for cell in planned.cells]):
            ended = _ended(runner, begun, found, planned)
            if ended is not None:
                return ended
        note.begin()
        return runner.run(found, planned, None)

    entry, record = measuring.done(work)
    return Run(record, entry.directory)


def _ended(runner: Runner, begun: RunEntry, experiment: Experiment, planned: Plan) -> RunEntry | None:
    """The run with all its outcomes; None where it was begun with something else than what is there now."""
    try:
        check_resumable(begun, experiment, kinds())
        if begun.status == "complete":
            print(f"run {begun.id} was measured, and not reported yet", file=sys.stderr)
            return begun
        print(f"going on with run {begun.id}, which was interrupted", file=sys.stderr)
        return runner.resume(begun, experiment, planned)
    except UsageError as error:
        print(f"run {begun.id} is not gone on with: {error}", file=sys.stderr)
        return None
