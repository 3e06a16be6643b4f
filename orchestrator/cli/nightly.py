# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator nightly``: measure, compare with the last good nightly run, report."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter

from orchestrator.benchmarks.registry import kinds, reports
from orchestrator.cli import in_the_tree, options
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.experiment import Experiment, with_symbols
from orchestrator.experiment.plan import Plan
from orchestrator.files import write_whole
from orchestrator.library.stored import load_comparison
from orchestrator.nightly.night import (
    NightlyMarker,
    NightlyResult,
    comparison_sentence,
    last_good,
    nightly_lock,
    nightly_mail,
    summary_lines,
    unmeasured_mail,
)
from orchestrator.nightly.printed_night import NightReport, UnmeasuredNight
from orchestrator.nightly.webhook import Webhook
from orchestrator.paths import data_dir, lab_dir, user_path
from orchestrator.report.exports import render_junit, unmeasured_junit
from orchestrator.results.contract import Reason
from orchestrator.results.faults import storage_faults
from orchestrator.results.recorded_provenance import provenance_of
from orchestrator.results.run_files import last_lines
from orchestrator.results.runs import Run
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.runner import Runner, check_resumable


def nightly_run(experiment: Experiment, measurer: ConsoleLab, marker: NightlyMarker) -> Run:
    """Resume an interrupted nightly run, or start one. Raises LabError if nothing can be measured."""
    resolved = measurer.resolved(experiment)
    planned = measurer.planned(resolved)

    def work(runner: Runner) -> RunEntry:
        for interrupted in marker.runs(runner.store, experiment.name, [cell.id for cell in planned.cells]):
            finished = _resumed(runner, interrupted, resolved, planned)
            if finished is not None:
                return finished
        marker.begin()
        return runner.run(resolved, planned, None)

    return measurer.with_runner(work)


def _resumed(runner: Runner, interrupted: RunEntry, experiment: Experiment, planned: Plan) -> RunEntry | None:
    """The completed run; None if it cannot be resumed because something has changed since it began."""
    try:
        check_resumable(interrupted, experiment, kinds())
        if interrupted.status == "complete":
            print(f"run {interrupted.id} is complete, but not reported yet", file=sys.stderr)
            return interrupted
        print(f"resuming interrupted run {interrupted.id}", file=sys.stderr)
        return runner.resume(interrupted, experiment, planned)
    except UsageError as error:
        print(f"not resuming run {interrupted.id}: {error}", file=sys.stderr)
        return None


MAIL = "night.eml"

_REASON = TypeAdapter(Reason)
"""Escapes control characters, which XML does not allow: an error may quote a compiler."""


@dataclass(frozen=True)
class NightlyReport:
    """Where the report goes besides the terminal and the run's directory; None for those not wanted."""

    mail: Path | None
    junit: Path | None
    webhook: Webhook | None

    def check(self) -> None:
        """Raise UsageError for a file that cannot be written and for a wrong URL."""
        options.check_writable(self.mail, self.junit)
        if self.webhook is not None:
            self.webhook.check()

    def unmeasured(self, experiment: str, file: str, error: LabError) -> None:
        """Report, except on the terminal, that nothing of the experiment in ``file`` was measured."""
        reason = _REASON.validate_python(str(error))
        self._write(self.mail, unmeasured_mail(experiment, file, reason, datetime.now(UTC)))
        self._write(self.junit, unmeasured_junit(experiment, reason))
        self._post(UnmeasuredNight.of(experiment, file, reason, os.uname().nodename))

    def send(self, result: NightlyResult) -> None:
        provenance = provenance_of(result.run.directory)
        mail = nightly_mail(result, provenance, reports(), datetime.now(UTC))
        path = result.run.directory / MAIL
        for file in (path, self.mail):
            self._write(file, mail)
        if self.junit is not None:
            consoles = last_lines(result.run.directory, [cell.id for cell in result.failed])
            wrong = {change.pair.first.id: change.exceeded for change in result.exceeded}
            wrong |= {"comparison": (comparison_sentence(result),)} if result.not_compared else {}
            self._write(self.junit, render_junit(result.run.record, provenance, consoles, wrong))
        for line in (*summary_lines(result, reports()), f"report: {path}"):
            typer.echo(line)
        sys.stdout.flush()
        self._post(NightReport.of(result, os.uname().nodename))

    def _write(self, file: Path | None, text: str) -> None:
        if file is not None:
            with storage_faults(file):
                write_whole(file, text)

    def _post(self, content: NightReport | UnmeasuredNight) -> None:
        """Post to the webhook, and only warn if the server does not answer."""
        if self.webhook is None:
            return
        try:
            self.webhook.post(content.model_dump(mode="json"))
        except HostError as error:
            print(f"warning: {error}", file=sys.stderr)


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
        Path | None, typer.Option(metavar="FILE", help="Also write the report there, as a mail without a recipient.")
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit XML, in which cells that exceed their budget fail.")
    ] = None,
    webhook: Annotated[
        str | None,
        typer.Option(metavar="URL", envvar="ORCHESTRATOR_WEBHOOK", show_envvar=True, help="Post a JSON summary there."),
    ] = None,
    _schema: Annotated[bool, options.schema(lambda: NightReport | UnmeasuredNight)] = False,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure, compare with the last good nightly run, and report.

    Resumes an interrupted run. Exits with 0 if the run is good, 1 if a cell failed or exceeds its budget.
    """
    report = NightlyReport(mail, junit, Webhook(webhook) if webhook else None)
    report.check()
    file = data_dir("configs") / "nightly.yaml" if config is None else config
    measurer = ConsoleLab(jobs=jobs, offline=offline, verbose=verbose, fleet=fleet)
    with _reporting_unmeasured(report, file.stem, file):
        (file, given), *_ = in_the_tree.experiments([file], overrides or [], None)
        experiment = with_symbols(measurer.load(file, given))
        measurer.check_cells(experiment)
    with nightly_lock(lab_dir(), experiment.name) as marker:
        with _reporting_unmeasured(report, experiment.name, file):
            measurer.check()
            run = nightly_run(experiment, measurer, marker)
        try:
            result = _compared(run, str(user_path(str(file))))
            report.send(result)
            if result.is_good:
                with Store.open(lab_dir()) as store:
                    store.set_baseline(last_good(result.experiment), run.record.run)
        except Exception:
            # Without this every later nightly run would resume this one and fail again.
            marker.end()
            raise
        marker.end()
    raise typer.Exit(0 if result.is_good else 1)


@contextmanager
def _reporting_unmeasured(report: NightlyReport, experiment: str, file: Path) -> Iterator[None]:
    """Report an error of the body as a nightly run without measurements."""
    try:
        yield
    except LabError as error:
        report.unmeasured(experiment, str(user_path(str(file))), error)
        raise


def _compared(run: Run, file: str) -> NightlyResult:
    with Store.open(lab_dir()) as store:
        good = store.baselines().get(last_good(run.record.experiment))
    if good is None or good.run == run.record.run:
        return NightlyResult(run, file)
    try:
        return NightlyResult(run, file, load_comparison([good.run, run.record.run], []))
    except LabError as error:  # such as another experiment, or a missing scipy
        return NightlyResult(run, file, not_compared=str(error))
