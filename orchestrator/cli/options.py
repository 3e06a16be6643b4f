# SPDX-License-Identifier: GPL-2.0-only
"""Options that several commands share, and what they open: ``--offline`` the cache, ``--verbose`` the log of steps."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli import completion
from orchestrator.plain_text import plain_text
from orchestrator.program import PROGRAM
from orchestrator.steps import step_echo

if TYPE_CHECKING:
    from orchestrator.artifacts.build_context import BuildContext

Kernel = Annotated[
    str, typer.Option(help=f"Kernel name; see: {PROGRAM} list kernels.", autocompletion=completion.kernels)
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print each step and its duration on stderr.")]
Offline = Annotated[bool, typer.Option("--offline", help="Use only what is in the cache.")]
KernelConfig = Annotated[
    Path | None,
    typer.Option(
        "--kconfig", readable=False, metavar="FILE", help="A kernel tree's configuration; default: its own .config."
    ),
]
MakeVariables = Annotated[
    list[str] | None,
    typer.Option("--make", metavar="NAME=VALUE", help="A variable for a kernel tree's make: CC=gcc-12."),
]
Fleet = Annotated[
    str | None,
    typer.Option(
        "--fleet",
        metavar="NAME",
        help="Let a fleet's workers run the guests: local, another name, or tls://HOST:PORT.",
        autocompletion=completion.fleets,
    ),
]
OutputFolder = Annotated[Path | None, typer.Option("--out", help="Folder for the files.")]
Symbol = Annotated[str | None, typer.Option(help="Function to probe; default: the benchmark's, gettimeofday.")]
Offset = Annotated[int | None, typer.Option(help="Bytes behind the symbol; default: behind the ftrace nop.", min=0)]


def open_context(*, offline: bool) -> BuildContext:
    """The context of a command: the user's cache, progress and warnings on stderr."""
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.cache import Cache
    from orchestrator.paths import cache_dir

    return BuildContext(Cache(cache_dir()), offline, say, say)


def printed_steps(*, verbose: bool) -> contextlib.AbstractContextManager[None]:
    """Print the steps of what follows on stderr where the user asked for it."""
    return step_echo(say) if verbose else contextlib.nullcontext()


def say(text: str) -> None:
    """Print on stderr what goes on; a guest or a compiler may have written some of it."""
    print(plain_text(text), file=sys.stderr, flush=True)
