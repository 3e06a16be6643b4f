# SPDX-License-Identifier: GPL-2.0-only
"""The run of a night, and where it is reported."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from pydantic import TypeAdapter

from orchestrator.benchmarks.registry import kinds, reports
from orchestrator.cli.measuring import Measuring
from orchestrator.cli.options import check_writable
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.plan import Plan, check_budgets, plan
from orchestrator.files import write_whole
from orchestrator.nightly import (
    Night,
    NightNote,
    Webhook,
    against,
    night_json,
    night_lines,
    night_mail,
    unmeasured_json,
    unmeasured_mail,
)
from orchestrator.report.exports import render_junit, unmeasured_junit
from orchestrator.results.contract import Reason
from orchestrator.results.faults import storage_faults
from orchestrator.results.origin import Origin, origin_of
from orchestrator.results.run_files import last_lines
from orchestrator.results.runs import Run
from orchestrator.results.store import RunEntry
from orchestrator.run.runner import Runner, check_resumable

# The run of a night: a new one, or the one that a night before did not end.


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


# Where a night is reported: on the terminal, in a mail's file, to a CI system and a server.

MAIL = "night.eml"

_REASON = TypeAdapter(Reason)
"""An error quotes what others printed, such as a compiler: control characters are not allowed in XML."""


@dataclass(frozen=True)
class NightReport:
    """Files that a night's report goes to beside its run's own, and who is posted to; None for those not wanted."""

    mail: Path | None
    junit: Path | None
    webhook: Webhook | None

    @classmethod
    def checked(cls, mail: Path | None, junit: Path | None, webhook: str | None) -> NightReport:
        """Refuse what could not be written or posted to before anything is measured. Raises UsageError."""
        check_writable(mail, junit)
        hook = Webhook(webhook) if webhook else None
        if hook is not None:
            hook.check()
        return cls(mail, junit, hook)

    def unmeasured(self, experiment: str, error: LabError) -> None:
        """Tell everybody but the terminal that nothing was measured."""
        reason = _REASON.validate_python(str(error))
        self._write(self.mail, unmeasured_mail(experiment, reason, _now()))
        self._write(self.junit, unmeasured_junit(experiment, reason))
        self._post(unmeasured_json(experiment, reason))

    def send(self, night: Night, more: Sequence[str]) -> None:
        """Tell everybody; ``more`` are lines for the end of the terminal's summary."""
        origin = origin_of(night.run.directory)
        mail = night_mail(night, origin, reports(), _now())
        own = night.run.directory / MAIL
        for file in (own, self.mail):
            self._write(file, mail)
        if self.junit is not None:
            self._write(self.junit, _junit(night, origin))
        for line in night_lines(night, reports()):
            typer.echo(line)
        for line in (*more, f"report: {own}"):
            typer.echo(line)
        sys.stdout.flush()
        self._post(night_json(night))

    def _write(self, file: Path | None, text: str) -> None:
        if file is not None:
            with storage_faults(file):
                write_whole(file, text)

    def _post(self, content: Mapping[str, Any]) -> None:
        """A server that does not answer does not fail the night."""
        if self.webhook is None:
            return
        try:
            self.webhook.post({**content, "host": os.uname().nodename})
        except HostError as error:
            print(f"warning: {error}", file=sys.stderr)


def _junit(night: Night, origin: Origin) -> str:
    record = night.run.record
    consoles = last_lines(night.run.directory, [cell.id for cell in night.failed])
    wrong = {one.pair.first.id: one.beyond for one in night.beyond}
    if night.doubt:
        wrong["comparison"] = (against(night),)
    return render_junit(record, origin, consoles, wrong)


def _now() -> datetime:
    return datetime.now(UTC)
