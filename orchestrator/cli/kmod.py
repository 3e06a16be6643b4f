# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator kmod``: the probe modules, as source or built."""

from __future__ import annotations

import re
import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion, options
from orchestrator.cli.failures import expected_failures
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.artifacts.kernels import Kernel
    from orchestrator.artifacts.module_source import ModuleSource
    from orchestrator.catalog.kernels import KernelSpec

_PLACE = re.compile(r"([A-Za-z0-9_.]+)\+(0x[0-9a-fA-F]{1,8}|[1-9][0-9]{0,8}|0)")

app = typer.Typer(help="Probe modules, as source or built.", no_args_is_help=True)

Template = Annotated[
    str,
    typer.Argument(
        help="A module of the lab's, such as kprobe or djprobe, or the path of your own template.",
        autocompletion=completion.templates,
    ),
]


@app.command("render")
@expected_failures
def render(
    template: Template,
    kernel: options.Kernel = "debian-686",
    symbol: options.Symbol = None,
    offset: options.Offset = None,
    out: options.OutputFolder = None,
) -> None:
    """Render a module's template to C. Prints its main file, or writes all its files into a folder."""
    from orchestrator.catalog.kernels import kernel as kernel_spec

    _check(template, symbol, out)
    source = _source(template, kernel_spec(kernel), symbol, offset)
    if out is None:
        typer.echo(source.files[f"{source.name}_main.c"], nl=False)
        return
    source.write(out)
    print(f"{len(source.files)} files in {out}", file=sys.stderr)


@app.command("build")
@expected_failures
def build(
    template: Template,
    kernel: options.Kernel = "debian-686",
    symbol: options.Symbol = None,
    offset: options.Offset = None,
    out: options.OutputFolder = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Build a module for a kernel, and print the path of the .ko.

    It is called lab_NAME.ko, and own_NAME.ko where NAME.c or NAME.c.j2 is a file of your own.
    """
    import shutil

    from orchestrator.artifacts.kernels import ready_kernel
    from orchestrator.artifacts.modules import build_modules
    from orchestrator.catalog.kernels import kernel as kernel_spec
    from orchestrator.errors import BuildError

    _check(template, symbol, out)
    spec = kernel_spec(kernel)
    with options.printed_steps(verbose=verbose):
        context = options.open_context(offline=offline)
        built = ready_kernel(context, spec)
        symbol = symbol or _usual_symbol(spec)
        _check_place(built, symbol, offset)
        source = _source(template, spec, symbol, built.entry_offset(symbol) if offset is None else offset)
        (module,) = build_modules(context, built, [source])
    if isinstance(module, BuildError):
        raise module
    path = module.file
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        path = Path(shutil.copy(module.file, out))
    typer.echo(path)


@app.command("size")
@expected_failures
def size(
    kernel: options.Kernel = "lab-i386-up",
    listing: Annotated[bool, typer.Option("--listing", help="The disassembly too; | marks the unlikely path.")] = False,
    offline: options.Offline = False,
) -> None:
    """Print the bytes that a kernel marker adds to a function, beside those published in 2006."""
    from rich.console import Console

    from orchestrator.artifacts.kernels import ready_kernel
    from orchestrator.artifacts.module_source import render as render_module
    from orchestrator.artifacts.modules import build_modules
    from orchestrator.benchmarks.markers.codesize.object_file import read_object
    from orchestrator.benchmarks.markers.report.size_table import listing_lines, size_lines
    from orchestrator.catalog.kernels import kernel as kernel_spec
    from orchestrator.errors import BuildError

    context = options.open_context(offline=offline)
    built = ready_kernel(context, kernel_spec(kernel))
    (module,) = build_modules(context, built, [render_module("marker_sizes", {})])
    if isinstance(module, BuildError):
        raise module
    console = Console()
    found = read_object(module.file)
    for line in chain(size_lines(found, built.spec.name), listing_lines(found) if listing else ()):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _check(template: str, symbol: str | None, out: Path | None) -> None:
    """Raise UsageError or ConfigError for what cannot be, before anything is fetched or made."""
    from orchestrator.artifacts.module_source import templates
    from orchestrator.catalog.spelling import unknown
    from orchestrator.catalog.user_probe import SUFFIXES, find_module, is_path
    from orchestrator.errors import UsageError

    if is_path(template):
        if find_module(template).suffix == ".ko":
            hint = f"a guest loads it as it is: {PROGRAM} exec --module {shlex.quote(template)} -- COMMAND"
            raise UsageError(f"found {template!r}; it is built already, and has no source", hint=hint)
    elif template.endswith(SUFFIXES):
        raise UsageError(f"found {template!r}; a file of your own is named by a path, with a slash in it: ./{template}")
    elif template not in templates():
        raise UsageError(unknown("module", template, templates()))
    if symbol is not None and (place := _PLACE.fullmatch(symbol)):
        hint = f"--symbol {place[1]} --offset {int(place[2], 0)}"
        raise UsageError(f"--symbol: found {symbol!r}; an offset is an option of its own", hint=hint)
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError("it is no folder, and --out needs one", where=str(out))


def _check_place(kernel: Kernel, symbol: str, offset: int | None) -> None:
    """Raise UsageError for a place that the kernel has not; a function that it has not may be a module's."""
    from orchestrator.errors import UsageError
    from orchestrator.probes.static_point import wrong_point_reason

    reason = None if kernel.code is None else wrong_point_reason(kernel.code, symbol, offset)
    if reason is None or kernel.code is None:
        return
    if kernel.code.named(symbol):
        raise UsageError(f"kernel {kernel.spec.name}: {reason}", where="--symbol, --offset")
    print(f"note: kernel {kernel.spec.name}: {reason}; a module that is loaded before may have it", file=sys.stderr)


def _source(template: str, spec: KernelSpec, symbol: str | None, offset: int | None) -> ModuleSource:
    from orchestrator.artifacts.module_source import Value, render_own
    from orchestrator.artifacts.module_source import render as render_module
    from orchestrator.benchmarks.calls.benchmarks import benchmarks
    from orchestrator.benchmarks.calls.probe_setup import is_wrapper
    from orchestrator.catalog.system_calls import system_calls
    from orchestrator.catalog.user_probe import find_module, is_path

    benchmark = benchmarks()["gtodbench"]
    assert benchmark.call is not None
    symbol = symbol or _usual_symbol(spec)
    values: dict[str, Value] = {
        "symbol": symbol,
        "offset": spec.entry_offset if offset is None else offset,
        "number": system_calls()[benchmark.call].number(spec.arch, "auto") or 0,
        "wrapper": int(is_wrapper(symbol)),
    }
    if is_path(template):
        return render_own(find_module(template), values)
    return render_module(template, values)


def _usual_symbol(spec: KernelSpec) -> str:
    """The function that a probe goes to where none is named."""
    from orchestrator.benchmarks.calls.benchmarks import benchmarks

    return benchmarks()["gtodbench"].symbols[spec.arch]["auto"]
