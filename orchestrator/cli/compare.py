# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator compare``, ``baseline`` and ``bisect``: what became dearer between runs, kernels or commits."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.git_tree import GitTree, is_revision, revisions
from orchestrator.artifacts.kernel_build import TreeBuild
from orchestrator.cli import options
from orchestrator.cli.compared import compared as compared_cells
from orchestrator.cli.compared import compared_kernels, difference_of
from orchestrator.comparison.comparison import ComparedRuns
from orchestrator.comparison.forms import comparison_page, comparison_sheet, comparison_text, render_comparison
from orchestrator.errors import UsageError
from orchestrator.experiment.source import read_source
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.profile.difference import with_code
from orchestrator.program import PROGRAM
from orchestrator.report.history_sheets import bisection_json, bisection_sheet
from orchestrator.report.html.frame import COMPARISON_PAGE, Page
from orchestrator.report.profile_sheets import difference_sheet
from orchestrator.report.text import print_sheets
from orchestrator.results.origin import Found
from orchestrator.results.runs import find_run
from orchestrator.results.store import Baseline, Store, check_baseline_name, unknown_baseline
from orchestrator.results.stored_profile import ProfileDifference

if TYPE_CHECKING:
    from orchestrator.cli.commits import MeasuredCommits, TwoCommits
    from orchestrator.cli.measuring import Measuring

# Guests and kinds of benchmark are loaded where something is measured: stored runs are compared at once.

# ``orchestrator compare``: what became dearer, cheaper, appeared, vanished or failed between two runs or kernels.


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
    overrides: options.ConfigOverrides = None,
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
        from orchestrator.cli.commits import TwoCommits
        from orchestrator.cli.measuring import Measuring

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
        compared = compared_kernels(run, kernels, only or [])
    else:
        compared = compared_cells(given or ["latest"], only or [])
    _print(compared, form, limit or None, out)
    # A cell that failed in both of two stored runs is no change; one that was measured just now is a failure.
    has_failed = config is not None and any(cell.status == "failed" for cell in compared.after.record.cells)
    raise typer.Exit(1 if compared.comparison.beyond or has_failed else 0)


def _check_page(form: ComparisonForm, out: Path) -> None:
    """Refuse a file for another form, or one that a page cannot replace, before anything is measured for it."""
    if form is not ComparisonForm.HTML:
        raise UsageError(f"{form} goes to stdout", where="--out", hint=f"--format {form} >FILE, or --format html")
    options.check_page_file(out)


def _is_commit(name: str) -> bool:
    """Whether a name is no run's, but a commit's; a cell's id may have a ``@`` in it."""
    return "@" in name and ":" not in name and is_revision(name)


def _measured(wanted: TwoCommits, measuring: Measuring) -> ComparedRuns:
    """The experiment at two commits, or on two kernels, as they are named. Raises UsageError for one of each."""
    from orchestrator.cli.commits import TwoKernels

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
            options.show_page(
                lambda _: Page(comparison_page(compared)), out, compared.after.directory / COMPARISON_PAGE
            )
        case ComparisonForm.JSON:
            typer.echo(comparison_text(compared), nl=False)
        case ComparisonForm.MARKDOWN:
            typer.echo(render_comparison(compared, limit), nl=False)
        case ComparisonForm.TABLE:
            print_sheets([comparison_sheet(compared, limit)], Console())


# ``orchestrator baseline``: names for runs that others are compared with.

baseline_app = typer.Typer(no_args_is_help=True, help="Names for runs that others are compared with.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The baseline's name.", autocompletion=options.baselines)]


@baseline_app.command("set")
@options.expected_failures
def set_(name: _Name, run: options.Run = "latest") -> None:
    """Give a run a name. 'default' is what ``compare`` takes where no other run is named."""
    check_baseline_name(name)
    found = find_run(run, lab_dir())
    if found.unfinished:
        print(found.unfinished_sentence, file=sys.stderr)
    with Store.open(lab_dir()) as store:
        before = store.baselines().get(name)
        store.set_baseline(name, found.record.run)
    was = f" (it was {before.run})" if before is not None and before.run != found.record.run else ""
    typer.echo(f"{name} is {found.record.run}{was}")


@baseline_app.command("list")
@options.expected_failures
def list_() -> None:
    """List the baselines with their runs."""
    with options.opened_store() as store:
        rows = [] if store is None else [_row(store, one) for one in store.baselines().values()]
    options.print_columns(("baseline", "run", "experiment", "status", "since"), rows)


@baseline_app.command("remove")
@options.expected_failures
def remove(name: _Name) -> None:
    """Remove a name; its run stays."""
    with options.opened_store() as store:
        if store is None:
            raise unknown_baseline(name, {})
        store.remove_baseline(name)


def _row(store: Store, baseline: Baseline) -> tuple[str, ...]:
    entry = store.entry(baseline.run)
    since = f"{datetime.fromisoformat(baseline.since).astimezone():%Y-%m-%d %H:%M}"
    return baseline.name, entry.id, entry.experiment, entry.status, since


# ``orchestrator bisect``: the commit that has changed a cost.


@options.expected_failures
def bisect(
    config: Annotated[
        Path, typer.Argument(readable=False, metavar="CONFIG", help="Experiment file that names something in the tree.")
    ],
    good: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit of the tree before the change.")],
    bad: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit behind it.")],
    cell: Annotated[
        str | None, typer.Option(metavar="ID", help="The cell that is looked at: its id, or parts such as kprobe.")
    ] = None,
    overrides: options.Overrides = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    form: options.FormOption = options.Form.TABLE,
    limit: options.Limit = 20,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Find the commit from which on a cell costs as much as at --bad, and what that executes differently.

    A commit that does not build or boot is skipped. Exits with 1 where skipped commits hide the one that is looked for.
    """
    from orchestrator.cli.commits import CommitRuns, MeasuredCommits
    from orchestrator.cli.measuring import Measuring
    from orchestrator.run.bisection import Bisection

    read_source(config)  # a file that cannot be read is found before a tree is cloned and built
    ends = revisions(good, bad)
    build = TreeBuild.of(ends[0].top, kconfig, make or ())
    measuring = Measuring(offline=offline, verbose=verbose)
    with GitTree.open(Cache(cache_dir()), ends[0].top, offline=offline) as tree:
        runs = CommitRuns(tree, config, tuple(overrides or ()), build, measuring, "-bisect")
        measured = MeasuredCommits(runs, cell)
        found = Bisection(tree, measured.measure, options.say).between(*ends)
        difference = _difference(tree.parent(found.candidates[-1].hash), found, measured)
    _print_bisection(found, difference, form, limit or None)
    raise typer.Exit(0 if len(found.candidates) == 1 else 1)


def _difference(parent: str, found: Found, measured: MeasuredCommits) -> ProfileDifference | None:
    """What the newest candidate executes differently than the last good commit, where both have a profile."""
    before, after = measured.sides.get(parent), measured.sides.get(found.candidates[0].hash)
    if before is None or after is None or not (before.cell.profile and after.cell.profile):
        return None
    return difference_of(before, after)


def _print_bisection(found: Found, difference: ProfileDifference | None, form: options.Form, limit: int | None) -> None:

    by_symbol = [] if difference is None else [with_code(difference)]
    if form is options.Form.JSON:
        differences = [one.as_json() for one in by_symbol]
        typer.echo(json.dumps({**bisection_json(found), "differences": differences}, indent=2))
        return
    sheets = [bisection_sheet(found), *(difference_sheet(one, limit) for one in by_symbol)]
    options.print_profiles("Bisection", form, sheets, lambda sheet: [sheet], str)
