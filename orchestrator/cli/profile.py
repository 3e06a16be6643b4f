# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator profile``: where the instructions of a run's cells went."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
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

    from orchestrator.results.profile import CellProfile


@expected_failures
def profile(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="A run's directory, its id, or 'latest'; or cells of it, RUN:CELL.",
            autocompletion=completion.runs,
        ),
    ] = "latest",
    cell: Annotated[
        str | None, typer.Argument(metavar="CELL", help="A cell's id, or parts of it, such as kprobe; default: all.")
    ] = None,
    form: FormOption = Form.TABLE,
    limit: Limit = 20,
    tree: Annotated[
        bool, typer.Option("--tree", help="Calls, each with all that it calls; profiles need stacks.")
    ] = False,
    depth: Depth = 24,
    share: Share = 1.0,
    annotate: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="The function's instructions, each with its count per call.")
    ] = None,
    callgrind: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the profile of one cell for KCachegrind.")
    ] = None,
    folded: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the folded stacks of one cell.")] = None,
    flame_graph: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the stacks of one cell, as SVG.")
    ] = None,
) -> None:
    """Print where the instructions of each call went: by symbol, by class of instruction, and what missed in caches."""
    files = {"callgrind": callgrind, "folded": folded, "flame_graph": flame_graph}
    written = [f"--{kind.replace('_', '-')}" for kind, file in files.items() if file is not None]
    others = {"--annotate": annotate is not None, ", ".join(written): bool(written)}
    check_one({"--tree": tree, **others})
    check_one({f"--format {form}": form is not Form.TABLE, **others})
    check_writable(*files.values())
    profiles = _profiles(run, cell)
    if written:
        for kind, file in files.items():
            if file is not None:
                _write(profiles, kind, file)
    elif annotate is not None:
        from orchestrator.profile.annotation import annotated

        typer.echo(annotated(profiles, annotate))
    elif tree:
        _print_trees(profiles, depth, share, form)
    else:
        _print_symbols(profiles, limit or None, form)


def _write(profiles: Sequence[CellProfile], kind: str, file: Path) -> None:
    """Write the profile of the only cell in one of the formats for other programs."""
    from orchestrator.errors import UsageError
    from orchestrator.report.callgrind import callgrind_text
    from orchestrator.report.flame_graph import flame_graph
    from orchestrator.report.folded_stacks import folded_text
    from orchestrator.results.faults import storage_faults

    if len(profiles) != 1:
        cells = [one.cell for one in profiles[:20]]
        raise UsageError(f"{len(profiles)} cells do not go into one file", detail=cells, hint="name one of them: CELL")
    formats = {"callgrind": callgrind_text, "folded": folded_text, "flame_graph": flame_graph}
    text = formats[kind](profiles[0])
    with storage_faults(file):
        file.write_text(text)


def _profiles(run: str, cell: str | None) -> Sequence[CellProfile]:
    from orchestrator.cli.named_cells import cells_of_run, named
    from orchestrator.results.profile import load_profile

    chosen = named(run) if cell is None else cells_of_run(run, cell)
    cells = chosen.run.record.cells if chosen.cells is None else chosen.cells
    wanted = [one for one in cells if one.profile is not None] or cells[:1]
    return [load_profile(chosen.run.directory, one) for one in wanted]


def _print_symbols(profiles: Sequence[CellProfile], limit: int | None, form: Form) -> None:
    from orchestrator.profile.classes import per_call
    from orchestrator.report.cache_sheets import cache_sheets
    from orchestrator.report.profile_json import profile_json
    from orchestrator.report.profile_sheets import profile_sheet

    found = [(one, per_call(one)) for one in profiles]
    print_profiles(
        "Profiles",
        form,
        lambda: [sheet for both in found for sheet in (profile_sheet(*both, limit), *cache_sheets(both[0]))],
        lambda: [profile_json(*both) for both in found],
    )


def _print_trees(profiles: Sequence[CellProfile], depth: int, share: float, form: Form) -> None:
    from orchestrator.report.call_sheets import Cut, tree_sheet
    from orchestrator.report.profile_json import tree_json
    from orchestrator.results.call_tree import call_tree

    found = [(one, call_tree(one)) for one in profiles]
    print_profiles(
        "Profiles",
        form,
        lambda: [tree_sheet(tree, Cut(depth, share)) for _, tree in found],
        lambda: [tree_json(*both) for both in found],
    )
