# SPDX-License-Identifier: GPL-2.0-only
"""The ``orchestrator`` command line: the program's own options and its start; usage.py has the commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from orchestrator import __version__
from orchestrator.cli.failures import stop_on_signals
from orchestrator.cli.usage import Commands
from orchestrator.program import CHECKOUT_SCRIPT, NAME, PROGRAM

_COMPLETION = f"_{NAME}_COMPLETE".upper()
"""The variable in which a shell's completion script asks for names."""

app = typer.Typer(
    name=NAME,
    cls=Commands,
    help="A lab for the cost of kernel probes: QEMU guests with named CPUs, real modules, proved numbers.",
    epilog=f"`{PROGRAM} test` runs the checkout's tests; see: {PROGRAM} test -h" if CHECKOUT_SCRIPT else None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"orchestrator {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def _open_closed_streams() -> None:
    """Give a stream that the caller closed (``>&-``) /dev/null: Python has None there.

    The lowest free number is that stream's, which the first file to be opened, such as the store, would get otherwise.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the program ends


def _usage_name(arguments: Sequence[str]) -> str:
    """What usage lines call the program. A shell completes a command by its name, not by a path that was typed once."""
    return NAME if {"--install-completion", "--show-completion"} & set(arguments) else PROGRAM


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    stop_on_signals()
    app(prog_name=_usage_name(sys.argv[1:]), complete_var=_COMPLETION)
