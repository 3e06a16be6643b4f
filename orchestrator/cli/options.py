# SPDX-License-Identifier: GPL-2.0-only
"""Options that several commands have, and the context of builds that they ask for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.cli.completion import cpus, fleets, kernels
from orchestrator.cli.printing import say
from orchestrator.errors import UsageError
from orchestrator.paths import cache_dir
from orchestrator.program import PROGRAM
from orchestrator.steps import step_echo

Cpu = Annotated[
    str | None, typer.Option(help="CPU model; default: pentium4, or xeon-e5410 for 64 bit.", autocompletion=cpus)
]
Kernel = Annotated[str, typer.Option(help=f"Kernel name; see: {PROGRAM} list kernels.", autocompletion=kernels)]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print each step and its duration on stderr.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use only what is in the cache.")]
KernelConfig = Annotated[
    Path | None,
    typer.Option(
        "--kconfig", readable=False, metavar="FILE", help="The kernel tree's configuration; default: its .config."
    ),
]
MakeVariables = Annotated[
    list[str] | None,
    typer.Option("--make", metavar="NAME=VALUE", help="A make variable for the kernel tree: CC=gcc-12."),
]
Tree = Annotated[
    Path | None,
    typer.Option(
        "--tree", readable=False, metavar="DIR", help="A kernel's tree; default: the one around the current folder."
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Replace a value, as run does.")
]
ConfigOverrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="With --config: replace a value, as run does.")
]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="FILTER", help="Only matching cells: list12, probe=djprobe, or another name or pattern."),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, max=64, metavar="N", help="Parallel guests; default: 1.")
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="NAME",
        help="Run the guests on a fleet: local, another name, or tls://HOST:PORT.",
        autocompletion=fleets,
    ),
]
OutputFolder = Annotated[Path | None, typer.Option("--out", help="Folder for the files.")]
Symbol = Annotated[str | None, typer.Option(help="Function to probe; default: the benchmark's, gettimeofday.")]
Offset = Annotated[int | None, typer.Option(help="Bytes after the symbol; default: after the ftrace nop.", min=0)]
Limit = Annotated[int, typer.Option(min=0, metavar="N", help="List N symbols, and the rest in one line; 0: list all.")]
Depth = Annotated[int, typer.Option(min=0, max=256, metavar="N", help="With --tree: calls up to N levels deep.")]
Share = Annotated[
    float,
    typer.Option(
        "--share", min=0, max=100, metavar="PERCENT", help="With --tree: group calls below this share in one line."
    ),
]


def open_context(*, offline: bool) -> BuildContext:
    """The build context of a command: the user's cache, with progress and warnings on stderr."""
    return BuildContext(Cache(cache_dir()), offline, say, say)


def printed_steps(*, verbose: bool) -> contextlib.AbstractContextManager[None]:
    """Print the steps of the context on stderr if ``verbose``."""
    return step_echo(say) if verbose else contextlib.nullcontext()


@contextlib.contextmanager
def building(*, offline: bool, verbose: bool) -> Iterator[BuildContext]:
    """The build context of a command, whose steps are printed on stderr if ``verbose``."""
    with printed_steps(verbose=verbose):
        yield open_context(offline=offline)


def check_one(given: Mapping[str, bool]) -> None:
    """Raise UsageError if more than one of these options is given."""
    together = [option for option, is_given in given.items() if is_given]
    if len(together) > 1:
        raise UsageError(f"{' and '.join(together)} exclude each other", hint="name one of them")
