# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator nightly``: measure, compare with the last good night, tell."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from orchestrator.benchmarks.registry import kinds, reports
from orchestrator.cli import options
from orchestrator.cli.compared import compared
from orchestrator.cli.measuring import Measuring
from orchestrator.cli.options import check_writable, expected_failures
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import Plan, check_budgets, plan
from orchestrator.files import write_whole
from orchestrator.guest.machine import qemu_cpu_names
from orchestrator.nightly import (
    Night,
    NightNote,
    Webhook,
    against,
    good_night,
    night_json,
    night_lines,
    night_mail,
    only_night,
    unmeasured_json,
    unmeasured_mail,
)
from orchestrator.paths import data_dir, lab_dir
from orchestrator.report.exports import render_junit, unmeasured_junit
from orchestrator.results.contract import Reason
from orchestrator.results.faults import storage_faults
from orchestrator.results.origin import origin_of
from orchestrator.results.run_files import last_lines
from orchestrator.results.runs import Run
from orchestrator.results.store import RunEntry, Store
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


MAIL = "night.eml"

_REASON = TypeAdapter(Reason)
"""An error quotes what others printed, such as a compiler: control characters are not allowed in XML."""


@dataclass(frozen=True)
class NightReport:
    """Files that a night's report goes to beside its run's own, and who is posted to; None for those not wanted."""

    mail: Path | None
    junit: Path | None
    webhook: Webhook | None

    def check(self) -> None:
        """Refuse what could not be written or posted to before anything is measured. Raises UsageError."""
        check_writable(self.mail, self.junit)
        if self.webhook is not None:
            self.webhook.check()

    def unmeasured(self, experiment: str, error: LabError) -> None:
        """Tell everybody but the terminal that nothing was measured."""
        reason = _REASON.validate_python(str(error))
        self._write(self.mail, unmeasured_mail(experiment, reason, datetime.now(UTC)))
        self._write(self.junit, unmeasured_junit(experiment, reason))
        self._post(unmeasured_json(experiment, reason))

    def send(self, night: Night) -> None:
        origin = origin_of(night.run.directory)
        mail = night_mail(night, origin, reports(), datetime.now(UTC))
        own = night.run.directory / MAIL
        for file in (own, self.mail):
            self._write(file, mail)
        if self.junit is not None:
            consoles = last_lines(night.run.directory, [cell.id for cell in night.failed])
            wrong = {one.pair.first.id: one.beyond for one in night.beyond}
            wrong |= {"comparison": (against(night),)} if night.doubt else {}
            self._write(self.junit, render_junit(night.run.record, origin, consoles, wrong))
        for line in (*night_lines(night, reports()), f"report: {own}"):
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


@expected_failures
def nightly(
    config: Annotated[
        Path | None,
        typer.Argument(
            readable=False, metavar="[CONFIG]", help="Experiment file; default: the lab's configs/nightly.yaml."
        ),
    ] = None,
    overrides: options.Overrides = None,
    jobs: options.Jobs = None,
    fleet: options.Fleet = None,
    mail: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report there, too, as a mail without a recipient.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML, in which cells beyond budget fail.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(
            metavar="URL", envvar="ORCHESTRATOR_WEBHOOK", show_envvar=True, help="Post a summary there, as JSON."
        ),
    ] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure, compare with the last good night, and tell how it went.

    A night that was interrupted is resumed. Exits with 0 after a good night, and with 1 where a cell failed or is
    beyond its budget.
    """
    report = NightReport(mail, junit, Webhook(webhook) if webhook else None)
    report.check()
    file = config or data_dir("configs") / "nightly.yaml"
    with _reporting_unmeasured(report, file.stem):
        experiment = load_experiment(file, kinds(), overrides or [], qemu_cpu_names)
    with only_night(lab_dir(), experiment.name) as note:
        with _reporting_unmeasured(report, experiment.name):
            measuring = Measuring(jobs, offline=offline, verbose=verbose, fleet=fleet)
            measuring.check()
            run = night_run(experiment, measuring, note)
        try:
            night = _compared(run)
            report.send(night)
            if night.is_good:
                _keep_as_good(night)
        except Exception:
            # It would fail again every night, and nothing would be measured any more.
            note.end()
            raise
        note.end()
    raise typer.Exit(0 if night.is_good else 1)


@contextmanager
def _reporting_unmeasured(report: NightReport, experiment: str) -> Iterator[None]:
    """Report to everybody where the body fails to measure, or to find out what there is to measure."""
    try:
        yield
    except LabError as error:
        report.unmeasured(experiment, error)
        raise


def _compared(run: Run) -> Night:
    with Store.open(lab_dir()) as store:
        good = store.baselines().get(good_night(run.record.experiment))
    if good is None or good.run == run.record.run:
        return Night(run)
    try:
        return Night(run, compared([good.run, run.record.run], []))
    except LabError as error:  # another experiment by now, or scipy is missing
        return Night(run, doubt=str(error))


def _keep_as_good(night: Night) -> None:
    with Store.open(lab_dir()) as store:
        store.set_baseline(good_night(night.experiment), night.run.record.run)
