# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator compare``: what became dearer between runs, kernels or commits; and baselines, names of runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from orchestrator.artifacts.git_tree import is_revision
from orchestrator.cli import options
from orchestrator.cli.compared import compared as compared_cells
from orchestrator.cli.compared import compared_kernels
from orchestrator.comparison.comparison import ComparedRuns
from orchestrator.comparison.forms import comparison_page, comparison_sheet, comparison_text, render_comparison
from orchestrator.errors import UsageError
from orchestrator.paths import lab_dir
from orchestrator.program import PROGRAM
from orchestrator.report.html.frame import COMPARISON_PAGE, Page
from orchestrator.report.text import print_sheets
from orchestrator.results.runs import find_run
from orchestrator.results.store import LATEST, Store, check_baseline_name, unknown_baseline

ComparisonForm = StrEnum("ComparisonForm", "TABLE MARKDOWN JSON HTML")


@options.expected_failures
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] [B]",
            help="Runs, cells (RUN:CELL), baselines. B alone: with the baseline 'default', or else the run before it.",
            autocompletion=options.runs,
        ),
    ] = None,
    form: Annotated[
        ComparisonForm,
        typer.Option(
            "--format",
            help="table: for people; markdown: the same for GitHub; json: for programs; html: a page with all of it.",
        ),
    ] = ComparisonForm.TABLE,
    only: options.Only = None,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="List N changed cells, and count the rest; 0: all of them.")
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
            help="Measure this experiment first, on two kernels, or at TREE@A and TREE@B.",
        ),
    ] = None,
    overrides: options.ConfigOverrides = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    fleet: options.Fleet = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where --format html goes; default: stdout, of a terminal comparison.html."),
    ] = None,
    set_baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare nothing: call run A this.", autocompletion=options.baselines),
    ] = None,
    remove_baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Compare nothing: forget a name.", autocompletion=options.baselines),
    ] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Compare two runs cell by cell, the largest change first.

    A cell's profile explains its change by symbol. A baseline is a run with a name; 'default' is what B alone is
    compared with. Exits with 0 within the budgets of B's experiment, with 1 beyond them or where a cell failed or
    vanished, and with 2 where nothing can be compared.
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
        if form is not ComparisonForm.HTML:
            hint = f"--format {form} >FILE, or --format html"
            raise UsageError(f"{form} goes to stdout", where="--out", hint=hint)
        options.check_page_file(out)
    _check_number(given, 1 if kernels is not None else 2)
    if config is not None:
        if len(given) != 2 or kernels is not None:
            hint = f"{PROGRAM} compare --config CONFIG A B, or TREE@A TREE@B"
            raise UsageError("--config needs two kernels, or two commits", hint=hint)
        # Guests and kinds of benchmark are loaded where something is measured: stored runs are compared at once.
        measuring = options.loaded("cli.measuring:Measuring")(offline=offline, verbose=verbose, fleet=fleet)
        wanted = options.loaded("cli.commits:Wanted")(config, measuring, overrides or (), only or ())
        compared = options.loaded("cli.commits:compared_anew")(wanted, (given[0], given[1]), kconfig, make or ())
    else:
        _check_stored(given, {"--set, --kconfig and --make": overrides or kconfig or make, "--fleet": fleet})
        if kernels is None:
            compared = compared_cells(given or [LATEST], only or [])
        else:
            compared = compared_kernels(find_run(given[0] if given else LATEST, lab_dir()), kernels, only or [])
    _print(compared, form, limit or None, out)
    # A cell that failed in both of two stored runs is no change; one that was measured just now is a failure.
    has_failed = config is not None and any(cell.status == "failed" for cell in compared.after.record.cells)
    raise typer.Exit(1 if compared.comparison.beyond or has_failed else 0)


def _check_stored(names: Sequence[str], given: Mapping[str, object]) -> None:
    for option, value in given.items():
        if value:
            is_one = " and " not in option
            what = f"{option} {'is' if is_one else 'are'} for what --config measures"
            raise UsageError(what, hint=f"leave {'it' if is_one else 'them'} out")
    if any("@" in name and ":" not in name and is_revision(name) for name in names):  # a cell's id may have a @
        hint = f"{PROGRAM} compare --config CONFIG TREE@A TREE@B"
        raise UsageError("commits are compared by measuring them", hint=hint)


def _check_number(names: Sequence[str], most: int) -> None:
    if len(names) > most:
        what = "a run is named" if len(names) == 1 else f"{len(names)} runs are named"
        raise UsageError(what, hint=f"name at most {most}" if most else "leave them out")


def _print(compared: ComparedRuns, form: ComparisonForm, limit: int | None, out: Path | None) -> None:
    match form:
        case ComparisonForm.HTML:
            options.show_page(
                lambda _: Page(comparison_page(compared)), out, compared.after.directory / COMPARISON_PAGE
            )
        case ComparisonForm.JSON:
            typer.echo(comparison_text(compared), nl=False)
        case ComparisonForm.MARKDOWN:
            typer.echo(render_comparison(compared, limit), nl=False)
        case ComparisonForm.TABLE:
            print_sheets([comparison_sheet(compared, limit)], Console())


def _set(name: str, runs: Sequence[str]) -> None:
    _check_number(runs, 1)
    check_baseline_name(name)
    found = find_run(runs[0] if runs else LATEST, lab_dir())
    if found.unfinished:
        print(found.unfinished_sentence, file=sys.stderr)
    with Store.open(lab_dir()) as store:
        before = store.baselines().get(name)
        store.set_baseline(name, found.record.run)
    was = f" (it was {before.run})" if before is not None and before.run != found.record.run else ""
    typer.echo(f"{name} is {found.record.run}{was}")


def _remove(name: str, runs: Sequence[str]) -> None:
    _check_number(runs, 0)
    with options.opened_store() as store:
        if store is None:
            raise unknown_baseline(name, {})
        store.remove_baseline(name)
