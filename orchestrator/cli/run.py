# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator run``: run experiment files and print their tables."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.benchmarks.registry import kinds, reports
from orchestrator.catalog.kernels import kernel
from orchestrator.cli import options
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cli.options import write_page_to
from orchestrator.errors import HostError, UsageError
from orchestrator.experiment.experiment import Experiment, unprofiled, with_profile
from orchestrator.experiment.plan import Plan
from orchestrator.guest.machine import Machine
from orchestrator.guest.qemu_command import Wiring, qemu_command
from orchestrator.library.formats import Format, Formats
from orchestrator.library.needed_packages import check_packages
from orchestrator.library.tree_experiments import experiments as experiments_of_tree
from orchestrator.paths import cache_dir
from orchestrator.plain_text import counted
from orchestrator.program import PROGRAM
from orchestrator.results.contract import RunRecord, all_ok, json_text
from orchestrator.results.runs import Run, check_directory
from orchestrator.run.boot import checked_cells
from orchestrator.run.machines import machine_of, timing_of
from orchestrator.run.plan_check import check_plan
from orchestrator.run.runner import resolve_from_cache

RUN = Formats("run")


def run(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(
            readable=False, metavar="[CONFIG...]", help="Experiment files; default in a kernel's tree: all mechanisms."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value: machines.0.cpu=athlon.")
    ] = None,
    tree: options.Tree = None,
    only: options.Only = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run's directory; for several files, their parent folder.")
    ] = None,
    jobs: options.Jobs = None,
    fleet: options.Fleet = None,
    events: Annotated[
        bool, typer.Option("--events", help="Keep the recorded events, as CSV in the run's directory.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Boot every guest, even if a saved one could be restored.")
    ] = False,
    profile: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="Profile cells by symbols, classes, stacks, caches or purposes."),
    ] = None,
    form: Annotated[
        Format,
        options.format_option(RUN, "As for report; of several files csv has one header, json is an array."),
    ] = RUN.default,
    _schema: Annotated[bool, options.schema(lambda: RunRecord | list[RunRecord])] = False,
    html: Annotated[bool, typer.Option("--html", help="Write a page, report.html in the run's directory.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the experiment's latest unfinished run.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print cells and QEMU command lines; run nothing.")
    ] = False,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Run experiments, one after the other, and print their tables.

    In a kernel's tree, a file that names no kernel is measured on the tree's. Exits with 1 if a cell failed.
    """
    files = experiments_of_tree(ConsoleLab(), configs or [], overrides or [], tree)
    configs = [config for config, _ in files]
    _check_form(form, configs)
    # Check all files before the first one runs.
    experiments = [ConsoleLab().load(config, replaced) for config, replaced in files]
    if profile:
        without = [sentence for experiment in experiments for sentence in unprofiled(experiment, profile)]
        experiments = [with_profile(experiment, profile) for experiment in experiments]
        for sentence in without:
            print(sentence, file=sys.stderr)
    _check_names(configs, experiments)
    directories = _directories(out, experiments, resume=resume)
    cached = BuildContext(Cache(cache_dir()), offline=True)
    measurer = ConsoleLab(jobs=jobs, events=events, fresh=fresh, offline=offline, verbose=verbose, fleet=fleet)
    if dry_run:
        experiments = [resolve_from_cache(cached, experiment, kinds()) for experiment in experiments]
    else:
        measurer.check()
        check_packages(measurer.context(), experiments)  # of all files, before the first one's are fetched
        experiments = [measurer.resolved(experiment) for experiment in experiments]
    plans = [measurer.planned(experiment, only or []) for experiment in experiments]
    unchecked = [] if resume else [_check(*both, cached) for both in zip(experiments, plans, strict=True)]
    if dry_run:
        for experiment, planned, kernels in zip_longest(experiments, plans, unchecked):
            _print_plan(planned, cached)
            _print_unchecked(experiment, kernels or ())
        return
    measured: list[Run] = []
    for experiment, planned, directory in zip(experiments, plans, directories, strict=True):
        work = measurer.resumed if resume else measurer.measured
        measured.append(work(experiment, planned, directory))
        _show(measured, len(configs), form, charts=experiment.charts, html=html)
    raise typer.Exit(0 if all(all_ok(finished.record) for finished in measured) else 1)


def _check_form(form: Format, configs: Sequence[Path]) -> None:
    if len(configs) > 1 and form.is_document:
        hint = f"run them one at a time, or afterwards: {PROGRAM} report RUN --format {form}"
        raise UsageError(f"{form} is a document on one run", where="--format", hint=hint)


def _directories(out: Path | None, experiments: Sequence[Experiment], *, resume: bool) -> Sequence[Path | None]:
    """The directories of the runs, None for one that the store chooses. Raises UsageError for another run's."""
    directories = [
        out / experiment.name if out is not None and len(experiments) > 1 else out for experiment in experiments
    ]
    for directory in directories:
        if directory is not None and not resume:
            check_directory(directory)
    return directories


def _check(experiment: Experiment, planned: Plan, cached: BuildContext) -> list[str]:
    """Check a plan with the cached kernels. Returns the kernels whose points could not be checked."""

    def find(name: str) -> Kernel | None:
        try:
            return ready_kernel(cached, kernel(name))
        except HostError:
            return None

    return check_plan(experiment, planned, find)


def _check_names(configs: Sequence[Path], experiments: Sequence[Experiment]) -> None:
    """Raise UsageError for two experiments of one name, whose results would be mixed up."""
    first: dict[str, Path] = {}
    for config, experiment in zip(configs, experiments, strict=True):
        other_path = first.setdefault(experiment.name, config)
        if other_path is not config:
            raise UsageError(
                f"{other_path} and {config} are both named '{experiment.name}'",
                hint="rename one of them, or run them one at a time",
            )


def _show(measured: Sequence[Run], count: int, form: Format, *, charts: bool, html: bool) -> None:
    """Print the last run that was measured, of ``count``: in JSON all, if it is the last of several."""
    # What prints is loaded when the first table is complete.
    from orchestrator.pages.run_page import run_page
    from orchestrator.report.csv_export import render_csv
    from orchestrator.report.html.frame import PAGE
    from orchestrator.report.run_view import RunView

    run = measured[-1]
    if form.name == "json" and count > 1:
        if len(measured) == count:
            typer.echo(f"[{','.join(json_text(finished.record) for finished in measured)}]")
    elif form.name == "csv" and len(measured) > 1:
        typer.echo(render_csv(run.record).partition("\r\n")[2], nl=False)  # without the header
    else:
        form.write("run", RunView(run, reports()), options.StandardOutput())
    sys.stdout.flush()
    if form.name == RUN.default.name:
        _, *names, last = RUN.names
        forms = f"{', '.join(names)} or {last}"
        print(f"\nother forms: {PROGRAM} report {run.record.run} --format {forms}", file=sys.stderr)
    print(f"run {run.record.run}: {run.directory}", file=sys.stderr)
    if charts:
        _draw(run)
    if html:
        write_page_to(run.directory / PAGE, partial(run_page, run, reports()))


def _draw(run: Run) -> None:
    from orchestrator.report.kind import draw_charts

    try:
        drawn = draw_charts(run.record, run.directory, reports())
    except HostError as error:  # the figures are already stored
        print(f"no charts: {error}", file=sys.stderr)
    else:
        where = f"charts: {run.directory / 'charts'} ({counted(len(drawn), 'file')})"
        print(where if drawn else "these cells have no charts", file=sys.stderr)


def _print_unchecked(experiment: Experiment, kernels: Sequence[str]) -> None:
    for unknown in (table.table.unknown for table in experiment.tables if table.table.unknown is not None):
        typer.echo(f"# {unknown}")
    for name in kernels:
        typer.echo(f"# points not checked: kernel {name} is not in the cache, or its code is unreadable")


def _print_plan(planned: Plan, context: BuildContext) -> None:
    for boot in planned.boots:
        spec = boot.spec
        refused: Mapping[str, str] = {}
        try:
            cached = ready_kernel(context, spec)
            possible, refused = checked_cells(kinds().named(boot.kind), cached, boot)
            machine = machine_of(context, cached, possible)
        except HostError:
            image, root = (Path(f"({what} of {spec.name}, not built)") for what in ("kernel", "initramfs"))
            machine = Machine(
                boot.guest.cpu_model,
                image,
                root,
                boot.guest.smp,
                boot.guest.memory_mib,
                timing_of(boot.guest),
                keeps_time=boot.clock == "wall",
                channel=boot.guest.channel,
            )
        overlay = None if machine.root is None else Path("(the guest's own overlay)")
        wiring = Wiring("(a socket)", "(a socket)", "(the run's directory)/console", overlay=overlay)
        typer.echo(f"# boot: {boot.guest.cpu}, {spec.name}, clock {boot.clock}")
        typer.echo(shlex.join(qemu_command(machine, wiring)))
        for cell in boot.cells:
            unsupported = f"; unsupported: {refused[cell.id]}" if cell.id in refused else ""
            typer.echo(f"  {cell.id}  {cell.benchmark}: {kinds().named(boot.kind).describe(cell)}{unsupported}")
