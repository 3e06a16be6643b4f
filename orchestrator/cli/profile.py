# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator profile`` and ``disasm``: where instructions went, what differs between two, where probes can be."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_source import render
from orchestrator.artifacts.modules import build_modules
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.cli import one_guest, options
from orchestrator.cli.commits import Wanted, profiled_on_kernels
from orchestrator.cli.compared import RunCell, cells_of_run, difference_of, named, stored_pairs
from orchestrator.cli.measuring import Measuring, outcome
from orchestrator.errors import BuildError, HostError, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.paths import lab_dir
from orchestrator.probes.placement import FunctionPlaces, answered, places_of
from orchestrator.probes.point import wrong_point_reason
from orchestrator.profile.difference import ComparedCode, annotated, per_call, with_code
from orchestrator.profile.probe_places import Disassembly
from orchestrator.program import PROGRAM
from orchestrator.report.flames import callgrind_text, difference_flame_graph, flame_graph, folded_text
from orchestrator.report.profile_json import (
    difference_json,
    function_json,
    profile_json,
    tree_difference_json,
    tree_json,
)
from orchestrator.report.profile_sheets import (
    Cut,
    cache_sheets,
    difference_sheet,
    function_sheet,
    profile_sheet,
    tree_difference_sheet,
    tree_sheet,
)
from orchestrator.results.contract import CellRecord
from orchestrator.results.faults import storage_faults
from orchestrator.results.runs import find_run
from orchestrator.results.stored_profile import (
    CellProfile,
    FunctionDifference,
    ProfileDifference,
    call_tree,
    compared_trees,
    load_profile,
)
from orchestrator.run.guests import started

# ``orchestrator profile``: where the instructions of a run's cells went, or what differs between two.


@options.expected_failures
def profile(
    first: Annotated[
        str,
        typer.Argument(
            metavar="A",
            help="A run's directory, its id, or 'latest'; or cells of it, RUN:CELL. With --config a kernel.",
            autocompletion=options.runs,
        ),
    ] = "latest",
    second: Annotated[
        str | None,
        typer.Argument(
            metavar="CELL|B",
            help="A cell of A, by its id or parts of it, such as kprobe; default: all. "
            "Or another run, or RUN:CELL, or kernel: what B's calls execute more than A's.",
            autocompletion=options.runs,
        ),
    ] = None,
    form: options.FormOption = options.Form.TABLE,
    limit: options.Limit = 20,
    tree: Annotated[
        bool, typer.Option("--tree", help="Calls, each with all that it calls; profiles need stacks.")
    ] = False,
    depth: options.Depth = 24,
    share: options.Share = 1.0,
    annotate: Annotated[
        str | None,
        typer.Option(
            "--annotate", "--symbol", metavar="FUNCTION", help="The function's instructions, each with its counts."
        ),
    ] = None,
    callgrind: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the profile of one cell for KCachegrind.")
    ] = None,
    folded: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the folded stacks of one cell.")] = None,
    flame_graph: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the stacks of one cell, or of two, red where B has more.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            readable=False, metavar="CONFIG", help="Measure this experiment on the kernels A and B, compare those."
        ),
    ] = None,
    overrides: options.ConfigOverrides = None,
    only: options.Only = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Print where instructions went, or what B executes more than A.

    By symbol, by class of instruction, and what missed in caches; of two by symbol, the largest change first. With
    --config, exits with 1 when a cell failed.
    """
    files = {"callgrind": callgrind, "folded": folded, "flame_graph": flame_graph}
    written = [f"--{kind.replace('_', '-')}" for kind, file in files.items() if file is not None]
    others = {"--annotate": annotate is not None, ", ".join(written): bool(written)}
    options.check_one({"--tree": tree, **others})
    other = second if second is not None and (config is not None or _is_other(first, second)) else None
    if other is None or written:  # the instructions of two have all forms
        options.check_one({f"--format {form}": form is not options.Form.TABLE, **others})
    options.check_writable(*files.values())
    if config is None and (only or overrides):
        what = "--only and --set are for what --config measures"
        raise UsageError(what, hint="of stored cells RUN:CELL names one")
    cut = Cut(depth, share) if tree else None
    if other is None:
        if config is not None:
            raise UsageError("--config needs two kernels", hint=f"{PROGRAM} profile --config CONFIG A B")
        _print_profiles(_profiles(first, second), form, limit or None, cut, annotate, files)
        return
    if callgrind or folded:
        raise UsageError(f"{' and '.join(written)}: of one cell, not of two", hint="draw both: --flame-graph FILE")
    missing: Sequence[CellRecord] = ()
    if config is None:
        pairs = stored_pairs(first, other)
    else:
        wanted = Wanted(config, Measuring(offline=offline, verbose=verbose), overrides or (), only or ())
        pairs, missing = profiled_on_kernels(wanted, (first, other), ["stacks" if tree or flame_graph else "symbols"])
    _print_differences(pairs, form, limit or None, cut, annotate, flame_graph)
    for cell in missing:
        print(f"not compared: {cell.id}: {outcome(cell)}", file=sys.stderr)
    if not pairs:  # of stored cells there are some
        raise LabError("no cell has a number on both kernels")
    raise typer.Exit(1 if any(cell.status == "failed" for cell in missing) else 0)


def _print_profiles(
    profiles: Sequence[CellProfile],
    form: options.Form,
    limit: int | None,
    cut: Cut | None,
    function: str | None,
    files: Mapping[str, Path | None],
) -> None:
    """Where the instructions of each cell went: as trees of calls that are ``cut``, in one function, or in files."""
    if any(files.values()):
        for kind, file in files.items():
            if file is not None:
                _write(profiles, kind, file)
    elif function is not None:
        typer.echo(annotated(profiles, function))
    elif cut is not None:
        trees = [(one, call_tree(one)) for one in profiles]
        options.print_profiles(
            "Profiles", form, trees, lambda one: [tree_sheet(one[1], cut)], lambda one: tree_json(*one)
        )
    else:
        options.print_profiles(
            "Profiles",
            form,
            [(one, per_call(one)) for one in profiles],
            lambda both: [profile_sheet(*both, limit), *cache_sheets(both[0])],
            lambda both: profile_json(*both),
        )


def _is_other(first: str, second: str) -> bool:
    """Whether the second name is that of a run, or of a cell of one, and not of a cell of the first."""
    if ":" in first and not Path(first).is_dir():  # it names its own cells
        return True
    is_cell = ":" in second and not Path(second).is_dir()
    try:
        find_run(second.rpartition(":")[0] if is_cell else second, lab_dir())
    except LabError:
        return False
    return True


def _write(profiles: Sequence[CellProfile], kind: str, file: Path) -> None:
    """Write the profile of the only cell in one of the formats for other programs."""
    if len(profiles) != 1:
        cells = [one.cell for one in profiles[:20]]
        raise UsageError(f"{len(profiles)} cells do not go into one file", detail=cells, hint="name one of them: CELL")
    formats = {"callgrind": callgrind_text, "folded": folded_text, "flame_graph": flame_graph}
    text = formats[kind](profiles[0])
    with storage_faults(file):
        file.write_text(text)


def _profiles(run: str, cell: str | None) -> Sequence[CellProfile]:
    chosen = named(run) if cell is None else cells_of_run(run, cell)
    cells = chosen.run.record.cells if chosen.cells is None else chosen.cells
    wanted = [one for one in cells if one.profile is not None] or cells[:1]
    return [load_profile(chosen.run.directory, one) for one in wanted]


def _print_differences(
    pairs: Sequence[tuple[RunCell, RunCell]],
    form: options.Form,
    limit: int | None,
    cut: Cut | None,
    symbol: str | None,
    picture: Path | None,
) -> None:
    """What differs between the cells of each pair: as trees of calls that are ``cut``, in one function, or drawn."""
    differences = [difference_of(*pair) for pair in pairs]
    if picture is not None:
        _draw(differences, picture)
    elif cut is not None:
        trees = [(one, compared_trees(call_tree(one.before), call_tree(one.after))) for one in differences]
        options.print_profiles(
            "Differences",
            form,
            trees,
            lambda both: [tree_difference_sheet(*both, cut)],
            lambda both: tree_difference_json(*both),
        )
    elif symbol is not None:
        functions = _functions(differences, symbol)
        options.print_profiles(
            "Differences", form, functions, lambda both: [function_sheet(*both)], lambda both: function_json(*both)
        )
    else:
        compared = [with_code(one) for one in differences]
        options.print_profiles(
            "Differences", form, compared, lambda one: [difference_sheet(one, limit)], difference_json
        )


def _functions(
    differences: Sequence[ProfileDifference], name: str
) -> Sequence[tuple[ProfileDifference, FunctionDifference]]:
    """The function in the pairs of cells that execute it."""
    found: list[tuple[ProfileDifference, FunctionDifference]] = []
    refusals: list[UsageError] = []
    for one in differences:
        try:
            found.append((one, ComparedCode(one.before, one.after).function(name)))
        except UsageError as error:
            refusals.append(error)
    if not found and refusals:
        raise refusals[0]
    return found


def _draw(differences: Sequence[ProfileDifference], file: Path) -> None:
    """A picture in ``file``; of several pairs of cells one each, with the cell's id in the file's name."""
    for one in differences:
        named = file if len(differences) == 1 else file.with_stem(f"{file.stem}.{one.after.cell.replace('/', '.')}")
        picture = difference_flame_graph(one.before, one.after)
        with storage_faults(named):
            named.write_text(picture)
        if named != file:
            print(named, file=sys.stderr)


# ``orchestrator disasm``: a function's instructions, and which probes can be at each.

_RANGE = r"(?P<symbol>[^+]*)(?:\+(?P<first>[^.]*)(?:\.\.(?P<last>.*))?)?"
_OFFSET = r"0x[0-9a-fA-F]{1,6}|[0-9]{1,7}"


@options.expected_failures
def disasm(
    name: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL",
            help="A kernel's name, or the path of a build tree of your own.",
            autocompletion=options.kernels,
        ),
    ],
    function: Annotated[
        str, typer.Argument(metavar="FUNCTION", help="A function of it, or a part: vfs_read+0x10..0x40.")
    ],
    cpu: one_guest.Cpu = None,
    no_guest: Annotated[bool, typer.Option("--no-guest", help="Start no guest: what only it knows is ?.")] = False,
    form: options.FormOption = options.Form.TABLE,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Print a function's instructions and the probes each can take.

    A guest of the kernel is asked which.
    """
    symbol, bounds = _place(function)
    spec = kernel_spec(name)
    context = options.open_context(offline=offline)
    with options.printed_steps(verbose=verbose):
        kernel = ready_kernel(context, spec)
    code = _code(kernel)
    _check(kernel, code, symbol)
    places = places_of(code, kernel.config, symbol)
    assert places is not None  # _check() has asked
    found = Disassembly.of(spec.name, kernel.release, code, places)
    if bounds is not None:
        found = found.part(*bounds)
        if not found.text:
            raise UsageError(
                f"no instruction of {symbol} begins between +{bounds[0]:#x} and +{bounds[1]:#x}",
                hint=f"{PROGRAM} disasm {spec.argument} {symbol} lists all of them",
            )
    if not no_guest:
        try:
            with options.printed_steps(verbose=verbose):
                answers, guest = _answered(context, kernel, name, cpu, found.function)
            found = replace(found, function=answers, source=f"Answered by a guest of this kernel on {guest}.")
        except UsageError:
            raise
        except LabError as error:
            found = replace(found, source=f"No guest could be asked: {error.what}. ? is not known before a boot.")
    options.print_profiles("Disassembly", form, [found], lambda one: [one.sheet()], lambda one: one.json())


def _answered(
    context: BuildContext, kernel: Kernel, name: str, cpu: str | None, function: FunctionPlaces
) -> tuple[FunctionPlaces, str]:
    """The places with the answers of a guest, restored where one can be, and the guest's CPU. Raises LabError."""
    (module,) = build_modules(context, kernel, [render("places", {})])
    if isinstance(module, BuildError):
        raise module
    choice = one_guest.Choice(
        name, cpu, 1, one_guest.USUAL_MIB, one_guest.Accel.AUTO, one_guest.GuestModules([], [], [])
    )
    machine = choice.machine(context)
    with ScratchFolder("orchestrator-disasm-") as directory, started(context, machine, directory) as guest:
        return answered(guest, module, function), machine.cpu.name


def _place(function: str) -> tuple[str, tuple[int, int] | None]:
    """The function, and the offsets of the part that is asked for. Raises UsageError."""
    found = re.fullmatch(_RANGE, function)
    if found is None or not found["symbol"]:
        raise UsageError(f"found '{function}'; expected a kernel function, such as vfs_read")
    symbol, first, last = found.group("symbol", "first", "last")
    if first is None:
        return symbol, None
    if last is None and re.fullmatch(_OFFSET, first):
        place = int(first, 0)
        raise UsageError(
            f"found '{function}', a place in a function; expected the function",
            hint=f"name {symbol}, or a part of it: {symbol}+{place:#x}..{place + 0x10:#x}",
        )
    if last is None or not (re.fullmatch(_OFFSET, first) and re.fullmatch(_OFFSET, last)):
        raise UsageError(f"found '{function}'; expected a function, or a part of one, such as vfs_read+0x10..0x40")
    bounds = int(first, 0), int(last, 0)
    if bounds[0] > bounds[1]:
        raise UsageError(f"found '{function}', whose part ends before it begins")
    return symbol, bounds


def _code(kernel: Kernel) -> KernelCode:
    """The kernel's image. Raises HostError where it is not at hand."""
    code = kernel.code
    if code is None:
        raise HostError(
            f"the code of kernel {kernel.spec.name} is not at hand",
            where=str(kernel.spec.tree or kernel.image),
            hint="a build tree of your own needs its vmlinux and System.map, or a bzImage packed by gzip, xz or zstd",
        )
    return code


def _check(kernel: Kernel, code: KernelCode, symbol: str) -> None:
    """Raise UsageError for what is no function of the kernel's, or several."""
    reason = wrong_point_reason(code, symbol, None)
    if reason is not None:
        types = [one.type for one in code.named(symbol)]
        hint = "" if types else "a module's function is not in the image"
        if sum(one in FUNCTION_TYPES for one in types) > 1:
            hint = "name a function whose name the kernel has once"
        raise UsageError(f"kernel {kernel.spec.name}: {reason}", hint=hint)
