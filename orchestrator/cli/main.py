# SPDX-License-Identifier: GPL-2.0-only
"""The ``orchestrator`` command line. Commands import what they need when they run, so that ``--help`` is quick."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from orchestrator import __version__
from orchestrator.cli import (
    baseline,
    bisect,
    cache,
    compare,
    difference,
    disassembly,
    doctor,
    execute,
    fleet,
    history,
    image,
    kernel,
    kmod,
    listing,
    model,
    nightly,
    profile,
    report,
    run,
    shell,
    site,
)
from orchestrator.cli.examples import add_examples
from orchestrator.cli.failures import stop_on_signals
from orchestrator.cli.guest_command import WithGuestCommand
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
app.command("run")(run.run)
app.command("report")(report.report)
app.command("profile")(profile.profile)
app.command("diff")(difference.diff)
app.command("disasm")(disassembly.disasm)
app.command("history")(history.history)
app.command("site")(site.site)
app.command("bisect")(bisect.bisect)
app.command("compare")(compare.compare)
app.command("nightly")(nightly.nightly)
app.command("doctor")(doctor.doctor)
app.command("list")(listing.show)
app.command("exec", cls=WithGuestCommand)(execute.execute)
app.command("shell")(shell.shell)
app.add_typer(baseline.app, name="baseline")
app.add_typer(kernel.app, name="kernel")
app.add_typer(image.app, name="image")
app.add_typer(kmod.app, name="kmod")
app.add_typer(model.app, name="model")
app.add_typer(cache.app, name="cache")
app.add_typer(fleet.app, name="fleet")
add_examples(app)


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
