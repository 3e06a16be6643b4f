# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator run``: an experiment file from beginning to table."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.failures import expected_failures

if TYPE_CHECKING:
    from orchestrator.artifacts.workshop import Workshop
    from orchestrator.experiment.plan import Plan
    from orchestrator.experiment.schema import Experiment
    from orchestrator.results.store import RunEntry, Store


@expected_failures
def run(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The experiment file.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value: machines.0.cpu=athlon.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="Only these cells: probe=djprobe, or a name or pattern.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="The run's directory.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the experiment's latest unfinished run.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print cells and QEMU command lines; run nothing.")
    ] = False,
    offline: options.Offline = False,
) -> None:
    """Run an experiment and print its tables. Exits with 1 when a cell failed."""
    from rich.console import Console

    from orchestrator.artifacts.cache import Cache
    from orchestrator.artifacts.workshop import Workshop
    from orchestrator.cli.progress import watcher
    from orchestrator.experiment.plan import plan
    from orchestrator.experiment.runner import Runner, all_ok
    from orchestrator.experiment.schema import load_experiment
    from orchestrator.experiment.selection import select
    from orchestrator.guest.emulator import qemu_cpu_names
    from orchestrator.paths import cache_dir, lab_dir
    from orchestrator.report.table import print_table
    from orchestrator.results.store import Store

    experiment = load_experiment(config, overrides or [], qemu_cpu_names)
    planned = select(plan(experiment), only or [])
    if dry_run:
        _print_plan(planned, Workshop(Cache(cache_dir()), offline=True))
        return
    with watcher(sys.stderr) as watching, Store.open(lab_dir()) as store:
        runner = Runner(Workshop(Cache(cache_dir()), offline, watching.say), store, watching)
        if resume:
            entry = runner.resume(_unfinished(store, experiment, out), planned)
        else:
            entry = runner.run(experiment, planned, out)
        record = store.load_run(entry.id)
    print_table(record, Console())
    print(f"\nrun {entry.id}: {entry.directory}", file=sys.stderr)
    raise typer.Exit(0 if all_ok(record) else 1)


def _unfinished(store: Store, experiment: Experiment, directory: Path | None) -> RunEntry:
    from orchestrator.errors import UsageError
    from orchestrator.experiment.runner import check_resumable

    if directory is None:
        entry = store.latest(experiment.name, unfinished=True)
        if entry is None:
            raise UsageError(
                f"there is no unfinished run of experiment '{experiment.name}'", hint="leave out --resume to begin one"
            )
    else:
        entries = [e for e in store.runs() if e.directory.resolve() == directory.resolve()]
        if not entries:
            raise UsageError("this lab has no run in that directory", where=str(directory))
        entry = entries[0]
    check_resumable(entry, experiment)
    return entry


def _print_plan(planned: Plan, workshop: Workshop) -> None:
    """The cells by boot, each boot with its QEMU command line. Nothing is fetched, built or started."""
    from orchestrator.artifacts.initramfs import initramfs
    from orchestrator.artifacts.kernels import ready_kernel
    from orchestrator.catalog.cpus import cpu
    from orchestrator.catalog.kernels import kernels
    from orchestrator.errors import HostError
    from orchestrator.guest.machine import Machine, Wiring, qemu_command

    for boot in planned.boots:
        try:
            kernel = ready_kernel(workshop, kernels()[boot.kernel])
            image, root, built_in = kernel.image, initramfs(workshop, kernel), kernel.drivers_built_in
        except HostError:
            image, root = (Path(f"({what} of {boot.kernel}, not fetched yet)") for what in ("kernel", "initramfs"))
            built_in = kernels()[boot.kernel].packages is None
        machine = Machine(cpu(boot.cpu), image, root, boot.smp, boot.memory_mib, drivers_built_in=built_in)
        wiring = Wiring("(a socket)", "(a socket)", "(the run's directory)/console")
        typer.echo(f"# boot: {boot.cpu}, {boot.kernel}, clock {boot.clock}")
        typer.echo(shlex.join(qemu_command(machine, wiring)))
        for cell in boot.cells:
            typer.echo(f"  {cell.id}  {cell.benchmark}: {cell.repeats} x {cell.calls} calls, entry {cell.entry}")
