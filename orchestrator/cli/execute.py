# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator exec`` and ``shell``: a guest for one command, or for a terminal."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kept_guests import kept_guest
from orchestrator.cli import options, printing
from orchestrator.cli.field_options import from_fields
from orchestrator.cli.main import TypersError, WithExamples
from orchestrator.cli.one_guest import GuestChoice
from orchestrator.errors import GuestOops, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.guest.channel import Stream
from orchestrator.guest.guest import Guest, Watch
from orchestrator.guest.saving_and_restoring import reopen_guest
from orchestrator.guest.terminal import ESCAPE_KEY, Prepared, attend
from orchestrator.library.fetched_files import FetchedFiles
from orchestrator.library.guest_command import GUEST_COMMAND_LIMIT, GuestCommand
from orchestrator.library.guest_trouble import with_console_log
from orchestrator.library.running_guest import log_folder
from orchestrator.program import PROGRAM
from orchestrator.run.guest_start import start_guest, unwatched


@from_fields(GuestChoice, without=("channel", "user", "password_file", "get", "out", "timeout"))
def shell(
    choice: GuestChoice,
    saved: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Restore the guest of a failed test, as saved by pytest --qemu-keep."),
    ] = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Start a guest and connect its console to the terminal.

    `exit` or Ctrl-] ends it. Exits with 1 if its kernel reported an oops, a warning or a stall, or became tainted.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("a shell needs a terminal", hint=f"for a command and its output: {PROGRAM} exec -- COMMAND...")
    choice.check()
    if saved is not None:
        given = {each.name for each in fields(choice) if getattr(choice, each.name) not in (each.default, choice.guest)}
        if {*given, *choice.guest} - {"timing", "allow_oops", "console"}:
            raise UsageError("--saved restores the machine as it was saved", hint="leave out the other options")
        with options.printed_steps(verbose=verbose), log_folder(choice.console) as directory:
            _reopen(saved, directory, choice.expected)
        raise typer.Exit(0)
    with options.building(offline=offline, verbose=verbose) as context:
        machine = choice.machine(context)
        print(f"starting {machine.cpu.title}; `exit` or {ESCAPE_KEY} ends the guest", file=sys.stderr, flush=True)
        with log_folder(choice.console) as directory:

            def start(terminal: str, watch: Watch) -> Guest:
                return _started(context, choice, Guest(machine, directory, terminal=terminal), watch)

            @contextmanager
            def prepared(guest: Guest) -> Iterator[None]:
                with choice.leaving_core(context, guest):
                    choice.prepare(guest)
                    with choice.debugged(context, guest):
                        yield

            _attend(start, prepared, directory)
    raise typer.Exit(0)


def _started(context: BuildContext, choice: GuestChoice, guest: Guest, watch: Watch = unwatched) -> Guest:
    guest.core_file = choice.core
    return start_guest(context, guest, watch=watch, fresh=choice.fresh)


def _reopen(file: Path, directory: Path, expected: Sequence[re.Pattern[str]]) -> None:
    with ScratchFolder("orchestrator-kept-") as unpacked, kept_guest(file, unpacked) as (machine, saved):
        print(f"restoring {file}; `exit` or {ESCAPE_KEY} ends the guest", file=sys.stderr, flush=True)

        def start(terminal: str, watch: Watch) -> Guest:
            guest = Guest(machine, directory, terminal=terminal)
            guest.expected_reports = expected
            guest.say = printing.say
            watch(guest)
            reopen_guest(guest, saved)
            return guest

        _attend(start, lambda guest: nullcontext(), directory)


def _attend(start: Callable[[str, Watch], Guest], prepared: Prepared, directory: Path) -> None:
    try:
        attend(start, prepared)
    except GuestOops as trouble:
        raise with_console_log(trouble, directory / "guest.console") from None
    print("\nthe guest has ended", file=sys.stderr)


class WithGuestCommand(WithExamples):
    """A command of the lab followed by one for the guest, after which all options are the guest command's.

    Refuses options of the guest command without ``--`` before it, which could be meant for the lab's.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = list(args)
        ctx.allow_interspersed_args = False
        rest = super().parse_args(ctx, args)
        command = list(ctx.params.get("command") or ())
        option = next((word for word in command if word.startswith("-") and word != "-"), None)
        if option is not None and "--" not in given:
            ours = given[: len(given) - len(command)]
            example = shlex.join(["exec", *ours, "--", *command])
            rule = "put options of exec before the command, and -- before a command with options"
            raise TypersError(f"{option} is after the command; {rule}: {PROGRAM} {example}")
        return rest


@from_fields(GuestChoice)
def execute(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run in the guest.")],
    choice: GuestChoice,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Start a guest, run a command in it, and exit with its status.

    Prints the command's output as it comes. The command may write to /scratch, an empty folder in the guest.

    Exits with 1 if the command ended with 0 but the kernel reported an oops, a warning or a stall, became tainted, or
    --get found no file.
    """
    files = FetchedFiles(choice.get or [], choice.out)
    files.check()
    choice.check()
    guest_command = GuestCommand(command, files, choice.timeout or GUEST_COMMAND_LIMIT, choice.kernel_modules)
    with options.building(offline=offline, verbose=verbose) as context:
        machine = choice.machine(context)
        with (
            log_folder(choice.console) as directory,
            _started(context, choice, Guest(machine, directory)) as guest,
            choice.leaving_core(context, guest),
        ):
            status = guest_command.run(guest, _print, choice.prepare, partial(choice.debugged, context))
    raise typer.Exit(status)


def _print(kind: Stream, data: bytes) -> None:
    stream = sys.stdout if kind is Stream.STDOUT else sys.stderr
    stream.buffer.write(data)
    stream.buffer.flush()
