# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator diff``: what differs between two cells, the cells of two runs, or two kernels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion, options
from orchestrator.cli.failures import expected_failures
from orchestrator.cli.profile_forms import (
    Depth,
    Form,
    FormOption,
    Limit,
    Share,
    check_one,
    check_writable,
    print_profiles,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.cli.compared_kernels import Measured
    from orchestrator.report.call_sheets import Cut
    from orchestrator.results.profile_difference import FunctionDifference, ProfileDifference

_HELP = "A run, or one of its cells: RUN:CELL, such as latest:kprobe. With --config a kernel."


@expected_failures
def diff(
    before: Annotated[str, typer.Argument(metavar="A", help=_HELP, autocompletion=completion.runs)],
    after: Annotated[str, typer.Argument(metavar="B", help=_HELP, autocompletion=completion.runs)],
    form: FormOption = Form.TABLE,
    limit: Limit = 20,
    symbol: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="Compare this function by instruction.")
    ] = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Compare calls, each with all that it calls; profiles need stacks.")
    ] = False,
    depth: Depth = 24,
    share: Share = 1.0,
    flame_graph: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw calls as SVG, red where B executes more; profiles need stacks."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            readable=False, metavar="CONFIG", help="Measure this experiment on the kernels A and B, compare those."
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="With --config: replace a value, as run does."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="With --config: only these cells, as run does.")
    ] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Print what B's calls execute more than A's, by symbol, the largest change first.

    With --config, exits with 1 when a cell failed.
    """
    from orchestrator.cli.compared_cells import difference_of, stored_pairs
    from orchestrator.errors import UsageError

    check_one({"--symbol": symbol is not None, "--tree": tree, "--flame-graph": flame_graph is not None})
    check_one({"--flame-graph": flame_graph is not None, f"--format {form}": form is not Form.TABLE})
    check_writable(flame_graph)
    if config is None and (only or overrides):
        what = "--only and --set are for what --config measures"
        raise UsageError(what, hint="of stored cells RUN:CELL names one")
    measured = None
    if config is None:
        pairs = stored_pairs(before, after)
    else:
        from orchestrator.cli.compared_kernels import TwoKernels
        from orchestrator.cli.measured import Measuring

        parts = ["stacks"] if tree or flame_graph is not None else ["symbols"]
        wanted = TwoKernels(config, (before, after), overrides or [], only or [])
        measured = wanted.measured(parts, Measuring(offline=offline, verbose=verbose))
        pairs = measured.pairs
    differences = [difference_of(*pair) for pair in pairs]
    if flame_graph is not None:
        _draw(differences, flame_graph)
    elif tree:
        from orchestrator.report.call_sheets import Cut

        _print_trees(differences, Cut(depth, share), form)
    elif symbol is not None:
        _print_function(differences, symbol, form)
    else:
        _print_symbols(differences, limit or None, form)
    if measured is not None:
        _say_missing(measured)


def _print_symbols(differences: Sequence[ProfileDifference], limit: int | None, form: Form) -> None:
    from orchestrator.profile.instruction_difference import with_code
    from orchestrator.report.profile_json import difference_json
    from orchestrator.report.profile_sheets import difference_sheet

    compared = [with_code(one) for one in differences]
    print_profiles(
        "Differences",
        form,
        lambda: [difference_sheet(one, limit) for one in compared],
        lambda: [difference_json(one) for one in compared],
    )


def _print_function(differences: Sequence[ProfileDifference], name: str, form: Form) -> None:
    """The function in the pairs of cells that execute it."""
    from orchestrator.errors import UsageError
    from orchestrator.profile.instruction_difference import ComparedCode
    from orchestrator.report.profile_json import function_json
    from orchestrator.report.profile_sheets import function_sheet

    found: list[tuple[ProfileDifference, FunctionDifference]] = []
    refusals: list[UsageError] = []
    for one in differences:
        try:
            found.append((one, ComparedCode(one.before, one.after).function(name)))
        except UsageError as error:
            refusals.append(error)
    if not found and refusals:
        raise refusals[0]
    print_profiles(
        "Differences",
        form,
        lambda: [function_sheet(*both) for both in found],
        lambda: [function_json(*both) for both in found],
    )


def _print_trees(differences: Sequence[ProfileDifference], cut: Cut, form: Form) -> None:
    from orchestrator.report.call_sheets import tree_difference_sheet
    from orchestrator.report.profile_json import tree_difference_json
    from orchestrator.results.call_tree import call_tree, compared_trees

    found = [(one, compared_trees(call_tree(one.before), call_tree(one.after))) for one in differences]
    print_profiles(
        "Differences",
        form,
        lambda: [tree_difference_sheet(*both, cut) for both in found],
        lambda: [tree_difference_json(*both) for both in found],
    )


def _draw(differences: Sequence[ProfileDifference], file: Path) -> None:
    """A picture in ``file``; of several pairs of cells one each, with the cell's id in the file's name."""
    from orchestrator.report.difference_flame_graph import difference_flame_graph
    from orchestrator.results.faults import storage_faults

    for one in differences:
        named = file if len(differences) == 1 else file.with_stem(f"{file.stem}.{one.after.cell.replace('/', '.')}")
        picture = difference_flame_graph(one.before, one.after)
        with storage_faults(named):
            named.write_text(picture)
        if named != file:
            print(named, file=sys.stderr)


def _say_missing(measured: Measured) -> None:
    """Which cells have no number and are not compared; the status says whether one of them has failed."""
    from orchestrator.cli.progress import outcome
    from orchestrator.errors import LabError

    for cell in measured.missing:
        print(f"not compared: {cell.id}: {outcome(cell)}", file=sys.stderr)
    if not measured.pairs:
        raise LabError("no cell has a number on both kernels")
    raise typer.Exit(1 if any(cell.status == "failed" for cell in measured.missing) else 0)
