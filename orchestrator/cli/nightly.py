# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator nightly``: measure, compare with the last good night, show it, make room, tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.cache_entries import Kind, cache_entries, fates, remove
from orchestrator.benchmarks.registry import kinds, reports
from orchestrator.cli import options
from orchestrator.cli.compared import compared
from orchestrator.cli.measuring import Measuring
from orchestrator.cli.nightly_run import NightReport, night_run
from orchestrator.cli.options import expected_failures
from orchestrator.errors import LabError
from orchestrator.experiment.file import load_experiment
from orchestrator.guest.machine import qemu_cpu_names
from orchestrator.nightly import Night, good_night, only_night
from orchestrator.paths import cache_dir, data_dir, lab_dir
from orchestrator.report.site.building import build_site
from orchestrator.results.runs import Run
from orchestrator.results.store import Store

_EXPERIMENT = "nightly.yaml"
_DAY = 86_400


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
    site: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the pages are; default: the folder site beside the store.")
    ] = None,
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
    keep_days: Annotated[
        int, typer.Option(min=1, metavar="N", help="Remove from the cache what was not used in the last N days.")
    ] = 30,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Measure an experiment, compare it with the last good night, rebuild the site, prune the cache, print a summary.

    A night that was interrupted is gone on with. Exits with 0 after a good night, with 1 where a cell failed or is
    beyond its budget, and with 3 where the site or the cache could not be seen to.
    """
    report = NightReport.checked(mail, junit, webhook)
    file = config or data_dir("configs") / _EXPERIMENT
    with _reporting_unmeasured(report, file.stem):
        experiment = load_experiment(file, kinds(), overrides or [], qemu_cpu_names)
    with only_night(lab_dir(), experiment.name) as note:
        with _reporting_unmeasured(report, experiment.name):
            measuring = Measuring(jobs, offline=offline, verbose=verbose, fleet=fleet)
            measuring.check()
            run = night_run(experiment, measuring, note)
        try:
            night = _compared(run)
            done, problems = _seen_to(
                {"site": partial(_site, site or lab_dir() / "site"), "cache": partial(_pruned, keep_days)}
            )
            night = replace(night, problems=problems)
            report.send(night, done)
            if night.is_good:
                _keep_as_good(night)
        except Exception:
            # It would fail again every night, and nothing would be measured any more.
            note.end()
            raise
        note.end()
    raise typer.Exit(1 if not night.is_good else 3 if problems else 0)


@contextmanager
def _reporting_unmeasured(report: NightReport, experiment: str) -> Iterator[None]:
    """Report to everybody where the body fails to measure, or to find out what there is to measure."""
    try:
        yield
    except LabError as error:
        report.unmeasured(experiment, error)
        raise


def _compared(run: Run) -> Night:
    """The night beside the last good one, if there is one."""
    with Store.open(lab_dir()) as store:
        good = store.baselines().get(good_night(run.record.experiment))
    if good is None or good.run == run.record.run:
        return Night(run)
    try:
        return Night(run, compared([good.run, run.record.run], []))
    except LabError as error:  # another experiment by now, or scipy is missing
        return Night(run, doubt=str(error))


def _seen_to(work: Mapping[str, Callable[[], str]]) -> tuple[list[str], list[str]]:
    """What was done, each in a line, and what could not be done: that is no reason to lose the night."""
    done, problems = [], []
    for name, do in work.items():
        try:
            done.append(f"{name}: {do()}")
        except (LabError, OSError) as error:
            problems.append(f"{name}: {error}")
    return done, problems


def _site(directory: Path) -> str:
    with Store.open(lab_dir()) as store:
        built = build_site(store, directory, reports())
    lacking = f"; {built.lacking}" if built.lacking else ""
    return f"{built.index} ({built.pages} pages, {built.written} of them written{lacking})"


def _pruned(keep_days: int) -> str:
    cache = Cache(cache_dir())
    unused_since = time.time() - keep_days * _DAY
    leaving = [fate.entry for fate in fates(cache_entries(cache), unused_since, list(Kind)) if not fate.stays]
    gone = [one.size for one in remove(leaving, unused_since) if one.is_done]
    return f"{sum(gone) / 1e6:.1f} MB freed in {cache.root}"


def _keep_as_good(night: Night) -> None:
    with Store.open(lab_dir()) as store:
        store.set_baseline(good_night(night.experiment), night.run.record.run)
