# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator compare``: compare runs, kernels or commits, and set or remove baselines."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion, format_options, options, printing
from orchestrator.comparison.comparison_forms import ComparisonView
from orchestrator.comparison.comparison_json import PrintedComparison
from orchestrator.errors import UsageError
from orchestrator.late_import import loaded
from orchestrator.library.baselines import remove_baseline, set_baseline
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.formats import Format, Formats
from orchestrator.library.stored import compared_kernels, load_comparison
from orchestrator.paths import lab_dir
from orchestrator.program import PROGRAM
from orchestrator.results.runs import find_run
from orchestrator.results.store import LATEST

COMPARISON = Formats("comparison")


def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] [B]",
            help="Runs, cells (RUN:CELL) or baselines. B alone is compared with the baseline 'default' or the run "
            "before it.",
            autocompletion=completion.runs,
        ),
    ] = None,
    form: Annotated[Format, format_options.format_option(COMPARISON)] = COMPARISON.default,
    _schema: Annotated[bool, format_options.schema(lambda: PrintedComparison)] = False,
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
    new_baseline: Annotated[
        str | None,
        typer.Option(
            "--set-baseline",
            metavar="NAME",
            help="Make run A this baseline, and stop.",
            autocompletion=completion.baselines,
        ),
    ] = None,
    former_baseline: Annotated[
        str | None,
        typer.Option(
            "--remove-baseline",
            metavar="NAME",
            help="Remove this baseline, and stop.",
            autocompletion=completion.baselines,
        ),
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
    options.check_one({"--set-baseline": new_baseline is not None, "--remove-baseline": former_baseline is not None})
    if new_baseline is not None:
        _set(new_baseline, given)
        return
    if former_baseline is not None:
        _remove(former_baseline, given)
        return
    if out is not None:
        if not form.is_page:
            hint = f"--format {form} >FILE, or --format html"
            raise UsageError(f"{form} goes to stdout", where="--out", hint=hint)
        printing.check_page_file(out)
    _check_number(given, 1 if kernels is not None else 2)
    if config is not None:
        if len(given) != 2 or kernels is not None:
            hint = f"{PROGRAM} compare --config CONFIG A B, or TREE@A TREE@B"
            raise UsageError("--config needs two kernels, or two commits", hint=hint)
        # Imported here, so that the comparison of stored runs starts quickly.
        lab = loaded("cli.console_lab:ConsoleLab")(offline=offline, verbose=verbose, fleet=fleet)
        request = ExperimentRequest(config, overrides or (), only or (), kconfig, make or ())
        compared = lab.compare_measured(request, given[0], given[1])
    else:
        _check_stored({"--set, --kconfig and --make": overrides or kconfig or make, "--fleet": fleet})
        if kernels is None:
            compared = load_comparison(given or [LATEST], only or [])
            if compared.is_with_itself:
                what = f"run {compared.after.record.run} is compared with itself, so nothing can differ"
                print(f"note: {what}", file=sys.stderr)
        else:
            compared = compared_kernels(find_run(given[0] if given else LATEST, lab_dir()), kernels, only or [])
    form.write("comparison", ComparisonView(compared, limit or None), printing.StandardOutput(out))
    raise typer.Exit(0 if compared.passes else 1)


def _check_stored(given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            is_one = " and " not in option
            what = f"{option} {'needs' if is_one else 'need'} --config"
            raise UsageError(what, hint=f"leave {'it' if is_one else 'them'} out")


def _check_number(names: Sequence[str], most: int) -> None:
    if len(names) > most:
        count = "a run" if len(names) == 1 else f"{len(names)} runs"
        raise UsageError(f"found {count}; expected {f'at most {most}' if most else 'none'}")


def _set(name: str, runs: Sequence[str]) -> None:
    _check_number(runs, 1)
    run, before = set_baseline(name, runs[0] if runs else LATEST)
    if run.unfinished:
        print(run.unfinished_sentence, file=sys.stderr)
    was = f" (previously {before})" if before not in (None, run.record.run) else ""
    typer.echo(f"{name} is {run.record.run}{was}")


def _remove(name: str, runs: Sequence[str]) -> None:
    _check_number(runs, 0)
    remove_baseline(name)
