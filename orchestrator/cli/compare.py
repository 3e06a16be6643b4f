# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator compare``: compare runs, kernels or commits, and set or remove baselines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.artifacts.git_tree import is_revision
from orchestrator.cli import options
from orchestrator.comparison.comparison_forms import ComparisonView
from orchestrator.comparison.comparison_json import PrintedComparison
from orchestrator.errors import UsageError
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.formats import Format, Formats
from orchestrator.library.stored import compared_kernels, load_comparison
from orchestrator.paths import lab_dir
from orchestrator.program import PROGRAM
from orchestrator.results.runs import find_run
from orchestrator.results.store import LATEST, Store, check_baseline_name, unknown_baseline

COMPARISON = Formats("comparison")


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] [B]",
            help="Runs, cells (RUN:CELL) or baselines. B alone is compared with the baseline 'default' or the run "
            "before it.",
            autocompletion=options.runs,
        ),
    ] = None,
    form: Annotated[Format, options.format_option(COMPARISON)] = COMPARISON.default,
    _schema: Annotated[bool, options.schema(lambda: PrintedComparison)] = False,
    only: options.Only = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="List N changed cells and count the rest; 0: list all.")
    ] = 20,
    kernels: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Compare the cells of one run that differ in the kernel only."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            metavar="CONFIG",
            help="Measure this experiment on two kernels, or at TREE@A and TREE@B.",
        ),
    ] = None,
    overrides: options.ConfigOverrides = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    fleet: options.Fleet = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File for --format html; default: stdout, or comparison.html on a terminal."),
    ] = None,
    set_baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Make run A this baseline, and stop.", autocompletion=options.baselines),
    ] = None,
    remove_baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Remove this baseline, and stop.", autocompletion=options.baselines),
    ] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Compare two runs cell by cell, the largest change first.

    Profiles explain changes by symbol. A baseline is a run with a name. B alone is compared with 'default' if that is
    of its experiment, else with the run before it. Exits with 0 if all cells are within the budgets of B's experiment,
    1 if one exceeds its budget, failed on a side, is missing or cannot be compared, and 2 if nothing can be compared.
    """
    given = names or []
    options.check_one({"--set-baseline": set_baseline is not None, "--remove-baseline": remove_baseline is not None})
    if set_baseline is not None:
        _set(set_baseline, given)
        return
    if remove_baseline is not None:
        _remove(remove_baseline, given)
        return
    if out is not None:
        if not form.is_page:
            hint = f"--format {form} >FILE, or --format html"
            raise UsageError(f"{form} goes to stdout", where="--out", hint=hint)
        options.check_page_file(out)
    _check_number(given, 1 if kernels is not None else 2)
    if config is not None:
        if len(given) != 2 or kernels is not None:
            hint = f"{PROGRAM} compare --config CONFIG A B, or TREE@A TREE@B"
            raise UsageError("--config needs two kernels, or two commits", hint=hint)
        # Imported here, so that the comparison of stored runs starts quickly.
        lab = options.loaded("cli.console_lab:ConsoleLab")(offline=offline, verbose=verbose, fleet=fleet)
        request = ExperimentRequest(config, overrides or (), only or (), kconfig, make or ())
        compared = lab.compare_measured(request, given[0], given[1])
    else:
        _check_stored(given, {"--set, --kconfig and --make": overrides or kconfig or make, "--fleet": fleet})
        if kernels is None:
            compared = load_comparison(given or [LATEST], only or [])
            if compared.is_with_itself:
                what = f"run {compared.after.record.run} is compared with itself, so nothing can differ"
                print(f"note: {what}", file=sys.stderr)
        else:
            compared = compared_kernels(find_run(given[0] if given else LATEST, lab_dir()), kernels, only or [])
    form.write("comparison", ComparisonView(compared, limit or None), options.StandardOutput(out))
    raise typer.Exit(0 if compared.passes else 1)


def _check_stored(names: Sequence[str], given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            is_one = " and " not in option
            what = f"{option} {'needs' if is_one else 'need'} --config"
            raise UsageError(what, hint=f"leave {'it' if is_one else 'them'} out")
    if any("@" in name and ":" not in name and is_revision(name) for name in names):  # a cell's id may have a @
        hint = f"{PROGRAM} compare --config CONFIG TREE@A TREE@B"
        raise UsageError("comparing commits needs an experiment to measure", hint=hint)


def _check_number(names: Sequence[str], most: int) -> None:
    if len(names) > most:
        count = "a run" if len(names) == 1 else f"{len(names)} runs"
        raise UsageError(f"found {count}; expected {f'at most {most}' if most else 'none'}")


def _set(name: str, runs: Sequence[str]) -> None:
    _check_number(runs, 1)
    check_baseline_name(name)
    run = find_run(runs[0] if runs else LATEST, lab_dir())
    if run.unfinished:
        print(run.unfinished_sentence, file=sys.stderr)
    with Store.open(lab_dir()) as store:
        before = store.baselines().get(name)
        store.set_baseline(name, run.record.run)
    was = f" (previously {before.run})" if before is not None and before.run != run.record.run else ""
    typer.echo(f"{name} is {run.record.run}{was}")


def _remove(name: str, runs: Sequence[str]) -> None:
    _check_number(runs, 0)
    with options.opened_store() as store:
        if store is None:
            raise unknown_baseline(name, {})
        store.remove_baseline(name)
