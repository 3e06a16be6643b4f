# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator bisect``: the commit that has changed a cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import options
from orchestrator.cli.failures import expected_failures
from orchestrator.cli.profile_forms import Form, FormOption, Limit, print_profiles

if TYPE_CHECKING:
    from orchestrator.cli.measured_commits import MeasuredCommits
    from orchestrator.results.bisected import Found
    from orchestrator.results.profile_difference import ProfileDifference


@expected_failures
def bisect(
    config: Annotated[
        Path, typer.Argument(readable=False, metavar="CONFIG", help="Experiment file that names something in the tree.")
    ],
    good: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit of the tree before the change.")],
    bad: Annotated[str, typer.Option(metavar="TREE@REV", help="A commit behind it.")],
    cell: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The cell that is looked at: its id, or parts such as kprobe."),
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value, as run does.")
    ] = None,
    kconfig: options.KernelConfig = None,
    make: options.MakeVariables = None,
    form: FormOption = Form.TABLE,
    limit: Limit = 20,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Find the commit from which on a cell costs as much as at --bad, and what that executes differently.

    A commit that does not build or boot is skipped. Exits with 1 where skipped commits hide the one that is looked for.
    """
    from orchestrator.artifacts.cache import Cache
    from orchestrator.artifacts.git_tree import GitTree, revisions
    from orchestrator.artifacts.tree_build import TreeBuild
    from orchestrator.cli.commit_runs import CommitRuns
    from orchestrator.cli.measured import Measuring
    from orchestrator.cli.measured_commits import MeasuredCommits
    from orchestrator.experiment.file.source import read_source
    from orchestrator.paths import cache_dir
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
    _print(found, difference, form, limit or None)
    raise typer.Exit(0 if len(found.candidates) == 1 else 1)


def _difference(parent: str, found: Found, measured: MeasuredCommits) -> ProfileDifference | None:
    """What the newest candidate executes differently than the last good commit, where both have a profile."""
    from orchestrator.cli.compared_cells import difference_of

    before, after = measured.sides.get(parent), measured.sides.get(found.candidates[0].hash)
    if before is None or after is None or not (before.cell.profile and after.cell.profile):
        return None
    return difference_of(before, after)


def _print(found: Found, difference: ProfileDifference | None, form: Form, limit: int | None) -> None:
    from orchestrator.profile.instruction_difference import with_code
    from orchestrator.report.bisection_sheet import bisection_json, bisection_sheet
    from orchestrator.report.profile_json import difference_json
    from orchestrator.report.profile_sheets import difference_sheet

    by_symbol = [] if difference is None else [with_code(difference)]
    if form is Form.JSON:
        differences = [difference_json(one) for one in by_symbol]
        typer.echo(json.dumps({**bisection_json(found), "differences": differences}, indent=2))
        return
    sheets = [bisection_sheet(found), *(difference_sheet(one, limit) for one in by_symbol)]
    print_profiles("Bisection", form, lambda: sheets, list)
