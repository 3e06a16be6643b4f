# SPDX-License-Identifier: GPL-2.0-only
"""A nightly run: resumed or begun, compared with the last good one, and reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import LabError, UsageError
from orchestrator.experiment.experiment import Experiment, with_symbols
from orchestrator.experiment.plan import Plan
from orchestrator.library.measurer import Measurer
from orchestrator.library.nightly_report import NightlyReport
from orchestrator.library.stored import load_comparison
from orchestrator.library.tree_experiments import experiments
from orchestrator.nightly.night import NightlyMarker, NightlyResult, last_good, nightly_lock
from orchestrator.paths import data_dir, lab_dir, user_path
from orchestrator.results.runs import Run
from orchestrator.results.store import RunEntry, Store
from orchestrator.run.runner import Runner, check_resumable


@dataclass(frozen=True)
class NightlyRequest:
    """The experiment of nightly runs, by default ``configs/nightly.yaml``, with overrides, and its report."""

    file: Path | None = None
    overrides: Sequence[str] = ()
    report: NightlyReport = field(default_factory=NightlyReport)


def measured_night(
    measurer: Measurer, request: NightlyRequest, told: Callable[[NightlyResult, Path], None]
) -> NightlyResult:
    """Measure, compare with the last good nightly run, and report; ``told`` gets the result and its mail, once written.

    An interrupted run is resumed, and a good one is the last good one from now on. Raises LabError, which is reported,
    if nothing can be measured.
    """
    report = request.report
    report.check()
    file = request.file or data_dir("configs") / "nightly.yaml"
    with _reporting_unmeasured(report, file.stem, file):
        (file, overrides), *_ = experiments(measurer, [file], request.overrides, None)
        experiment = with_symbols(measurer.load(file, overrides))
        measurer.check_cells(experiment)
    with nightly_lock(lab_dir(), experiment.name) as marker:
        with _reporting_unmeasured(report, experiment.name, file):
            measurer.check()
            run = nightly_run(experiment, measurer, marker)
        try:
            result = _compared(run, str(user_path(str(file))))
            told(result, report.write(result))
            report.post(result)
            if result.is_good:
                with Store.open(lab_dir()) as store:
                    store.set_baseline(last_good(result.experiment), run.record.run)
        except Exception:
            # Without this every later nightly run would resume this one and fail again.
            marker.end()
            raise
        marker.end()
    return result


def nightly_run(experiment: Experiment, measurer: Measurer, marker: NightlyMarker) -> Run:
    """Resume an interrupted nightly run, or start one. Raises LabError if nothing can be measured."""
    resolved = measurer.resolved(experiment)
    planned = measurer.planned(resolved)

    def work(runner: Runner) -> RunEntry:
        for interrupted in marker.runs(runner.store, experiment.name, [cell.id for cell in planned.cells]):
            finished = _resumed(measurer, runner, interrupted, resolved, planned)
            if finished is not None:
                return finished
        marker.begin()
        return runner.run(resolved, planned, None)

    return measurer.with_runner(work)


def _resumed(
    measurer: Measurer, runner: Runner, interrupted: RunEntry, experiment: Experiment, planned: Plan
) -> RunEntry | None:
    """The completed run; None if it cannot be resumed because something has changed since it began."""
    try:
        check_resumable(interrupted, experiment, kinds())
        if interrupted.status == "complete":
            measurer.say(f"run {interrupted.id} is complete, but not reported yet")
            return interrupted
        measurer.say(f"resuming interrupted run {interrupted.id}")
        return runner.resume(interrupted, experiment, planned)
    except UsageError as error:
        measurer.say(f"not resuming run {interrupted.id}: {error}")
        return None


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
