# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator exec``: start a guest, run one command in it, exit with its status."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import fetched_files, guest_modules, one_guest, options
from orchestrator.cli.examples import WithExamples
from orchestrator.cli.failures import expected_failures
from orchestrator.cli.usage import TypersError
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.guest.channel import Stream


_LIMIT = 600.0
"""Seconds that the command may take without --timeout."""
_NOT_FOUND = 127
"""Status of a program that is not there, by the guest's agent and by shells."""

app = typer.Typer()


class WithGuestCommand(WithExamples):
    """A command of ours with one for the guest behind it, where all options are the latter's.

    Without ``--`` between them an option of the one could be taken for the other's: that is refused.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take our options and the guest's command."""
        given = list(args)
        ctx.allow_interspersed_args = False
        rest = super().parse_args(ctx, args)
        command = list(ctx.params.get("command") or ())
        option = next((word for word in command if word.startswith("-") and word != "-"), None)
        if option is not None and "--" not in given:
            ours = given[: len(given) - len(command)]
            example = shlex.join(["exec", *ours, "--", *command])
            rule = "options of exec go before the command, and -- before one with options of its own"
            raise TypersError(f"{option} is behind the command; {rule}: {PROGRAM} {example}")
        return rest


@app.command("exec", cls=WithGuestCommand)
@expected_failures
def execute(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run in the guest.")],
    kernel: one_guest.Kernel = None,
    image: one_guest.Image = None,
    data: one_guest.Data = None,
    kernel_modules: one_guest.KernelModules = False,
    channel: Annotated[
        one_guest.Channel,
        typer.Option(help="framed: the lab's own agent; ssh, serial: the image's sshd, a login on its console."),
    ] = one_guest.Channel.FRAMED,
    user: Annotated[str, typer.Option(help="Who logs in on the console (--channel serial).")] = "root",
    password_file: Annotated[
        Path | None, typer.Option(readable=False, help="A file with that user's password.")
    ] = None,
    cpu: one_guest.Cpu = None,
    smp: one_guest.Smp = 1,
    memory: one_guest.Memory = one_guest.USUAL_MIB,
    accel: one_guest.AccelOption = one_guest.Accel.AUTO,
    module: guest_modules.Modules = None,
    param: guest_modules.Parameters = None,
    set_values: guest_modules.Values = None,
    get: fetched_files.Paths = None,
    out: options.OutputFolder = None,
    allow_oops: one_guest.AllowOops = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Seconds the command may take, and as many for each --module's init function; default: "
            f"{_LIMIT:g}, and {one_guest.LOADING_LIMIT:g} for an init function.",
            show_default=False,
        ),
    ] = None,
    console: one_guest.ConsoleLog = None,
    fresh: one_guest.Fresh = False,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Start a guest, run a command in it, print its output as it comes, and exit with its status.

    /scratch is an empty folder in the guest that the command may write to.

    A kernel that reports trouble, or is tainted by it, is a failure as well, and a file that --get does not find: with
    status 1 where the command ended with 0.
    """
    from orchestrator.errors import GuestError
    from orchestrator.run.started_guest import started

    choice = one_guest.Choice(
        kernel,
        cpu,
        smp,
        memory,
        accel,
        guest_modules.GuestModules(module or [], param or [], set_values or []),
        image=image,
        data=data or [],
        channel=channel,
        user=user,
        password_file=password_file,
        expected=one_guest.expected_reports(allow_oops or []),
        kernel_modules=kernel_modules,
    )
    files = fetched_files.FetchedFiles(get or [], out)
    files.check()
    one_guest.check_log_folder(console)
    with options.printed_steps(verbose=verbose):
        context = options.open_context(offline=offline)
        machine = choice.machine(context)
        with (
            one_guest.log_folder(console) as directory,
            started(context, machine, directory, fresh=fresh) as guest,
        ):
            status = 0
            try:
                choice.prepare(guest, timeout or one_guest.LOADING_LIMIT)
                guest.make_folder(fetched_files.SCRATCH)
                limit = timeout or _LIMIT
                status = guest.run(command, time_limit=limit, listener=_print).status
                if status == _NOT_FOUND:
                    print(_not_found(command[0], kernel_modules=kernel_modules), file=sys.stderr)
                files.fetch(guest, limit)
            except GuestError as error:
                failure = one_guest.with_trouble(error, guest)
                failure.exit_status = status or failure.exit_status
                raise failure from None
            guest.drain_console()
            trouble = one_guest.unexpected_trouble(guest)
            if trouble is not None:
                trouble.exit_status = status or trouble.exit_status
                raise trouble
    raise typer.Exit(status)


def _print(kind: Stream, data: bytes) -> None:
    from orchestrator.guest.channel import Stream

    stream = sys.stdout if kind is Stream.STDOUT else sys.stderr
    stream.buffer.write(data)
    stream.buffer.flush()


def _not_found(program: str, *, kernel_modules: bool) -> str:
    """What to say where a command has ended with status 127; a shell says so of a program that it was to call."""
    words = f"note: status {_NOT_FOUND}: no such program in the guest: {program!r}, or one that it calls"
    if program.rpartition("/")[2] == "modprobe" and not kernel_modules:
        words += "\nhint: --kernel-modules puts modprobe and the kernel's own modules there"
    return words
