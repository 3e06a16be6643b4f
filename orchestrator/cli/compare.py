# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator compare``: what became dearer, cheaper, appeared, vanished or failed between two runs or kernels."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion, options
from orchestrator.cli.failures import expected_failures
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.cli.compared_commits import TwoCommits
    from orchestrator.cli.measured import Measuring
    from orchestrator.results.compared_runs import ComparedRuns


class ComparisonForm(StrEnum):
    """Forms of a comparison."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"
    HTML = "html"


@expected_failures
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A] [B]",
            help="Runs, cells (RUN:CELL), baselines. B alone: with the baseline 'default', or else the run before it.",
            autocompletion=completion.runs,
        ),
    ] = None,
    form: Annotated[
        ComparisonForm,
        typer.Option(
            "--format",
            help="table: for people; markdown: the same for GitHub; json: for programs; html: a page with all of it.",
        ),
    ] = ComparisonForm.TABLE,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="Only these cells, as run does: probe=djprobe.")
    ] = None,
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
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --config: replace a value, as run does."),
    ] = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    fleet: options.Fleet = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where --format html goes; default: stdout, of a terminal comparison.html."),
    ] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Compare two runs cell by cell, the largest change first, with the symbols that explain it.

    Exits with 0 within the budgets of B's experiment, with 1 beyond them or where a cell failed or vanished, and with 2
    where nothing can be compared.
    """
    from orchestrator.cli import compared_runs
    from orchestrator.errors import UsageError
    from orchestrator.paths import lab_dir
    from orchestrator.results.runs import find_run

    if out is not None:
        _check_page(form, out)
    given = names or []
    most = 1 if kernels is not None else 2
    if len(given) > most:
        raise UsageError(f"{len(given)} runs are named", hint=f"name at most {most}")
    if config is not None:
        if len(given) != 2 or kernels is not None:
            hint = f"{PROGRAM} compare --config CONFIG A B, or TREE@A TREE@B"
            raise UsageError("--config needs two kernels, or two commits", hint=hint)
        from orchestrator.cli.compared_commits import TwoCommits
        from orchestrator.cli.measured import Measuring

        wanted = TwoCommits(config, (given[0], given[1]), overrides or (), only or (), kconfig, make or ())
        measuring = Measuring(offline=offline, verbose=verbose, fleet=fleet)
        measuring.check()
        compared = _measured(wanted, measuring)
    elif overrides or kconfig or make:
        raise UsageError("--set, --kconfig and --make are for what --config measures", hint="leave them out")
    elif fleet is not None:
        raise UsageError("--fleet is for what --config measures", hint="leave it out")
    elif any(_is_commit(name) for name in given):
        hint = f"{PROGRAM} compare --config CONFIG TREE@A TREE@B"
        raise UsageError("commits are compared by measuring them", hint=hint)
    elif kernels is not None:
        run = find_run(given[0] if given else "latest", lab_dir())
        compared = compared_runs.compared_kernels(run, kernels, only or [])
    else:
        compared = compared_runs.compared(given or ["latest"], only or [])
    _print(compared, form, limit or None, out)
    # A cell that failed in both of two stored runs is no change; one that was measured just now is a failure.
    has_failed = config is not None and any(cell.status == "failed" for cell in compared.after.record.cells)
    raise typer.Exit(1 if compared.comparison.beyond or has_failed else 0)


def _check_page(form: ComparisonForm, out: Path) -> None:
    """Refuse a file for another form, or one that a page cannot replace, before anything is measured for it."""
    from orchestrator.cli.html_page import check_page_file
    from orchestrator.errors import UsageError

    if form is not ComparisonForm.HTML:
        raise UsageError(f"{form} goes to stdout", where="--out", hint=f"--format {form} >FILE, or --format html")
    check_page_file(out)


def _is_commit(name: str) -> bool:
    """Whether a name is no run's, but a commit's; a cell's id may have a ``@`` in it."""
    from orchestrator.artifacts.git_tree import is_revision

    return "@" in name and ":" not in name and is_revision(name)


def _measured(wanted: TwoCommits, measuring: Measuring) -> ComparedRuns:
    """The experiment at two commits, or on two kernels, as they are named. Raises UsageError for one of each."""
    from orchestrator.artifacts.git_tree import is_revision
    from orchestrator.cli.compared_kernels import TwoKernels
    from orchestrator.cli.compared_runs import compared_kernels
    from orchestrator.errors import UsageError

    are_commits = [is_revision(name) for name in wanted.names]
    if all(are_commits):
        return wanted.compared(measuring)
    if any(are_commits):
        raise UsageError("one is a kernel, the other a commit", hint="name two kernels, or two commits of one tree")
    if wanted.kconfig or wanted.make:
        raise UsageError("--kconfig and --make are for two commits of a kernel's tree", hint="leave them out")
    kernels = TwoKernels(wanted.config, wanted.names, wanted.overrides, wanted.only)
    return compared_kernels(kernels.run(measuring), kernels.names, [])


def _print(compared: ComparedRuns, form: ComparisonForm, limit: int | None, out: Path | None) -> None:
    match form:
        case ComparisonForm.HTML:
            from orchestrator.cli.html_page import show_page
            from orchestrator.report.html.attachments import Page
            from orchestrator.report.html.comparison_page import comparison_page
            from orchestrator.report.html.writing import COMPARISON_PAGE

            show_page(lambda _: Page(comparison_page(compared)), out, compared.after.directory / COMPARISON_PAGE)
        case ComparisonForm.JSON:
            from orchestrator.report.comparison_json import comparison_text

            typer.echo(comparison_text(compared), nl=False)
        case ComparisonForm.MARKDOWN:
            from orchestrator.report.comparison_markdown import render_comparison

            typer.echo(render_comparison(compared, limit), nl=False)
        case ComparisonForm.TABLE:
            from rich.console import Console

            from orchestrator.report.comparison_sheet import comparison_sheet
            from orchestrator.report.table import print_sheets

            print_sheets([comparison_sheet(compared, limit)], Console())
