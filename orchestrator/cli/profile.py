# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator profile`` and ``disasm``: profiles, their differences, and the probes of a function's instructions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.cli import completion, format_options, options, printing
from orchestrator.cli.console_lab import ConsoleLab
from orchestrator.cli.progress_lines import outcome
from orchestrator.errors import LabError, UsageError
from orchestrator.files import check_writable
from orchestrator.library.compared_measurements import profiled_on_kernels
from orchestrator.library.disassembly import disassembly
from orchestrator.library.experiment_request import ExperimentRequest
from orchestrator.library.formats import Format
from orchestrator.library.function_probes import PrintedDisassembly
from orchestrator.library.profiles_by_line import difference_by_line, sources_of
from orchestrator.library.stored import shown_ids
from orchestrator.library.stored_profiles import (
    RunCell,
    difference_of,
    names_stored_cells,
    profiled_cells,
    stored_pairs,
)
from orchestrator.profile.code.annotated_code import annotated
from orchestrator.profile.code.compared_code import functions_of, with_code
from orchestrator.profile.code.instruction_classes import per_call
from orchestrator.profile.lines.by_line import annotated_lines, by_line, with_lines
from orchestrator.profile.lines.line_coverage import coverage
from orchestrator.profile.printed import profile_sheets
from orchestrator.profile.printed.callgrind import callgrind_text
from orchestrator.profile.printed.flame_graph import flame_graph as flame_graph_svg
from orchestrator.profile.printed.lcov import lcov_text
from orchestrator.profile.printed.stack_formats import firefox_text, folded_text, pprof_bytes, speedscope_text
from orchestrator.profile.stored.call_tree import call_tree
from orchestrator.profile.stored.profiles_json import PrintedDifference, PrintedFunction, PrintedProfile, PrintedTree
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults

_Content = Callable[[RunCell], str | bytes]
"""What is written to a file about a cell."""
_INLINED = "A line of an inlined function is listed once for each symbol that it is in."


def profile(
    first: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A run's directory, its id, or 'latest'; or cells, RUN:CELL. With --config, a kernel.",
            autocompletion=completion.runs,
        ),
    ] = "latest",
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="CELL|B",
            help="A cell of A, by its id or parts of it, such as kprobe; default: all. "
            "Or another run, RUN:CELL or kernel, to print what B's calls execute more than A's.",
            autocompletion=completion.runs,
        ),
    ] = None,
    form: format_options.SheetFormat = format_options.SHEETS.default,
    _schema: Annotated[
        bool,
        format_options.schema(lambda: list[PrintedProfile | PrintedTree | PrintedDifference | PrintedFunction]),
    ] = False,
    limit: options.Limit = 20,
    tree: Annotated[bool, typer.Option("--tree", help="Print the tree of calls; needs a profile of stacks.")] = False,
    depth: options.Depth = 24,
    share: options.Share = 1.0,
    annotate: Annotated[
        str | None,
        typer.Option(
            "--annotate", "--symbol", metavar="FUNCTION", help="Print the function's instructions with their counts."
        ),
    ] = None,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines", help="Print by source line, with --annotate the source. Fetches or builds debug information."
        ),
    ] = False,
    lcov: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the executed lines of one cell as lcov's tracefile.")
    ] = None,
    callgrind: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the profile of one cell for KCachegrind.")
    ] = None,
    folded: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the folded stacks of one cell.")] = None,
    flame_graph: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the stacks of one cell, as SVG.")
    ] = None,
    pprof: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the stacks of one cell for pprof.")] = None,
    speedscope: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the stacks of one cell for speedscope.")
    ] = None,
    firefox: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the stacks of one cell for Firefox Profiler.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            readable=False, metavar="CONFIG", help="Measure this experiment on the kernels A and B, and compare them."
        ),
    ] = None,
    overrides: options.ConfigOverrides = None,
    only: options.Only = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Print where instructions went, or what B executes more than A.

    One profile is printed by symbol, by class of instruction, and with its cache misses; a difference by symbol, the
    largest change first. With --config, exits with 1 if a cell failed.
    """
    context = options.open_context(offline=offline)
    given: Mapping[str, tuple[Path | None, _Content]] = {
        "--callgrind": (callgrind, lambda cell: callgrind_text(cell.profile())),
        "--folded": (folded, lambda cell: folded_text(cell.profile())),
        "--flame-graph": (flame_graph, lambda cell: flame_graph_svg(cell.profile())),
        "--pprof": (pprof, lambda cell: pprof_bytes(cell.profile())),
        "--speedscope": (speedscope, lambda cell: speedscope_text(cell.profile())),
        "--firefox": (firefox, lambda cell: firefox_text(cell.profile())),
        "--lcov": (lcov, lambda cell: lcov_text(coverage(cell.profile(), sources_of(context, cell)))),
    }
    files = {option: (file, content) for option, (file, content) in given.items() if file is not None}
    file_options = {"--annotate": annotate is not None, ", ".join(files): bool(files)}
    options.check_one({"--tree": tree, **file_options})
    options.check_one({"--lines": lines, "--tree": tree, ", ".join(files): bool(files)})
    after = second if second is not None and (config is not None or names_stored_cells(first, second)) else None
    if after is None:  # differences with --annotate have all formats
        options.check_one({f"--format {form}": form.name != format_options.SHEETS.default.name, **file_options})
    check_writable(*(file for file, _ in files.values()))
    if config is None and (only or overrides):
        raise UsageError("--only and --set need --config", hint="select a stored cell by RUN:CELL")
    if after is None:
        if config is not None:
            raise UsageError("--config needs two kernels", hint=f"{PROGRAM} profile --config CONFIG A B")
        cells = profiled_cells(first, second)
        if files:
            _write(cells, files)
            return
        cut = profile_sheets.TreeLimits(depth, share) if tree else None
        _print_profiles(cells, form, limit or None, cut, annotate, context if lines else None)
        return
    if tree or files:
        raise UsageError(f"{', '.join(files) or '--tree'} needs one cell, not two", hint="name one RUN:CELL")
    options.check_one({"--lines": lines, "--annotate": annotate is not None})
    missing: Sequence[CellRecord] = ()
    if config is None:
        pairs, left_out = stored_pairs(first, after)
        if left_out:
            print(f"not compared, without a profile in both runs: {', '.join(shown_ids(left_out))}", file=sys.stderr)
    else:
        lab = ConsoleLab(offline=offline, verbose=verbose)
        request = ExperimentRequest(config, overrides or (), only or ())
        pairs, missing = profiled_on_kernels(lab, request, (first, after))
    _print_differences(pairs, form, limit or None, annotate, context if lines else None)
    _end(pairs, missing)


def _end(pairs: Sequence[tuple[RunCell, RunCell]], missing: Sequence[CellRecord]) -> NoReturn:
    for cell in missing:
        print(f"not compared: {cell.id}: {outcome(cell)}", file=sys.stderr)
    if not pairs:
        raise LabError("no cell has a number on both kernels")
    raise typer.Exit(1 if any(cell.status == "failed" for cell in missing) else 0)


def _write(cells: Sequence[RunCell], files: Mapping[str, tuple[Path, _Content]]) -> None:
    if len(cells) != 1:
        names = [cell.cell.id for cell in cells[:20]]
        raise UsageError(f"found {len(cells)} cells; a file takes one", detail=names, hint="name one of them: CELL")
    for file, content in files.values():
        made = content(cells[0])
        with storage_faults(file):
            file.write_bytes(made if isinstance(made, bytes) else made.encode())


def _print_profiles(
    cells: Sequence[RunCell],
    form: Format,
    limit: int | None,
    cut: profile_sheets.TreeLimits | None,
    function: str | None,
    context: BuildContext | None,
) -> None:
    """Print the instructions of each cell, as trees of calls with ``cut``, or in one ``function``.

    With a ``context`` they are printed by source line.
    """
    profiles, inlined = [cell.profile() for cell in cells], profile_sheets.INLINED
    if context is not None:
        lines = [
            by_line(cell_profile, sources_of(context, cell, function))
            for cell, cell_profile in zip(cells, profiles, strict=True)
        ]
        if function is not None:
            typer.echo(annotated_lines(list(zip(profiles, lines, strict=True)), function))
            return
        profiles, inlined = list(map(with_lines, profiles, lines)), _INLINED
    if function is not None:
        typer.echo(annotated(profiles, function))
    elif cut is not None:
        trees = [(cell_profile, call_tree(cell_profile)) for cell_profile in profiles]
        content = (PrintedTree.of(cell_profile, tree) for cell_profile, tree in trees)
        printing.print_profiles("Profiles", form, (profile_sheets.tree_sheet(tree, cut) for _, tree in trees), content)
    else:
        both = [(cell_profile, per_call(cell_profile)) for cell_profile in profiles]
        sheets = (
            sheet
            for cell_profile, classes in both
            for sheet in (
                profile_sheets.profile_sheet(cell_profile, classes, limit, inlined),
                *profile_sheets.cache_sheets(cell_profile),
            )
        )
        printed = (PrintedProfile.of(cell_profile, classes) for cell_profile, classes in both)
        printing.print_profiles("Profiles", form, sheets, printed)


def _print_differences(
    pairs: Sequence[tuple[RunCell, RunCell]],
    form: Format,
    limit: int | None,
    symbol: str | None,
    context: BuildContext | None,
) -> None:
    """Print differences by symbol, of one ``symbol`` by instruction, or by source line if there is a ``context``."""
    if symbol is not None:
        functions = functions_of([difference_of(*pair) for pair in pairs], symbol)
        content = (PrintedFunction.of(*function) for function in functions)
        printing.print_profiles(
            "Differences", form, (profile_sheets.function_sheet(*function) for function in functions), content
        )
        return
    compared = [
        with_code(difference_of(*pair)) if context is None else difference_by_line(context, pair) for pair in pairs
    ]
    sheets = (profile_sheets.difference_sheet(profile_difference, limit) for profile_difference in compared)
    printing.print_profiles("Differences", form, sheets, map(PrintedDifference.of, compared))


def disasm(
    name: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL",
            help="A kernel's name, or the path of your own build tree.",
            autocompletion=completion.kernels,
        ),
    ],
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="A kernel function, such as vfs_read.")],
    cpu: options.Cpu = None,
    no_guest: Annotated[bool, typer.Option("--no-guest", help="Start no guest; print ? for its answers.")] = False,
    form: format_options.SheetFormat = format_options.SHEETS.default,
    _schema: Annotated[bool, format_options.schema(lambda: list[PrintedDisassembly])] = False,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Print a function's instructions and the probes each can take.

    The lab tries the probes in a guest of the kernel.
    """
    context = options.open_context(offline=offline)
    with options.printed_steps(verbose=verbose):
        function_code = disassembly(context, name, function, cpu, asks_guest=not no_guest)
    printing.print_profiles("Disassembly", form, [function_code.sheet()], [function_code.printed()])
