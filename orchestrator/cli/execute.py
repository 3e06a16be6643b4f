# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator exec`` and ``shell``: a guest for one command, or for a terminal."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import typer

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.saved_guests import kept_guest
from orchestrator.cli import one_guest, options
from orchestrator.cli.field_options import from_fields
from orchestrator.cli.main import TypersError, WithExamples
from orchestrator.cli.one_guest import GuestChoice
from orchestrator.errors import GuestError, GuestOops, HostError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.guest.channel import Stream
from orchestrator.guest.fetched_folder import fetch_folder
from orchestrator.guest.guest import Guest, Watch
from orchestrator.guest.terminal import ESCAPE_KEY, Prepared, attend
from orchestrator.library.guests import log_folder
from orchestrator.program import PROGRAM
from orchestrator.run.guests import start_guest, unwatched


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
            guest.say = options.say
            watch(guest)
            guest.reopen(saved)
            return guest

        _attend(start, lambda guest: nullcontext(), directory)


def _attend(start: Callable[[str, Watch], Guest], prepared: Prepared, directory: Path) -> None:
    try:
        attend(start, prepared)
    except GuestOops as trouble:
        raise one_guest.with_console_log(trouble, directory / "guest.console") from None
    print("\nthe guest has ended", file=sys.stderr)


SCRATCH = "/scratch"
"""The guest's folder for files that a command writes."""


@dataclass(frozen=True)
class FetchedFiles:
    """Paths in the guest to copy, and the host's folder for them, None for the current one."""

    paths: Sequence[str]
    out: Path | None

    @property
    def folder(self) -> Path:
        return self.out or Path()

    def check(self) -> None:
        """Raise UsageError for an invalid path or folder, and for a file that would be overwritten."""
        if self.out is not None and not self.paths:
            hint = f"to copy what the command writes to {SCRATCH}: --get {SCRATCH} --out {self.out}"
            raise UsageError(f"--out {self.out} needs --get", hint=hint)
        if self.paths:
            self._check_folder()
        names: dict[str, str] = {}
        for path in self.paths:
            name = PurePosixPath(path).name
            if not path.startswith("/") or path.endswith("/") or name in {"", ".."} or "\0" in path:
                what = "expected the absolute path of a file or folder in the guest"
                raise UsageError(f"--get {path}: {what}", hint=_instead(path))
            if name in names:
                hint = "let the command rename one, or get a folder that has both"
                raise UsageError(f"--get {path}: it has the same file name as {names[name]}", hint=hint)
            names[name] = path
            target = self.folder / name
            if os.path.lexists(target):
                hint = "move it away, or name another folder: --out FOLDER"
                raise UsageError("it exists already, and --get overwrites nothing", where=str(target), hint=hint)

    def fetch(self, guest: Guest, time_limit: float) -> None:
        """Copy the paths, each within ``time_limit`` host seconds, and files of at most 256 MiB.

        Raises GuestError for a missing path, after the others were copied, and HostError.
        """
        missing: GuestError | None = None
        for path in self.paths:
            try:
                if guest.run(["test", "-d", path], time_limit=time_limit).status == 0:  # or a link to a folder
                    fetch_folder(guest, path, self._target(path), time_limit)
                else:
                    self._write(path, guest.get(path, time_limit=time_limit))
            except GuestError as error:
                if guest.has_failed:
                    raise
                missing = missing or error
        if missing is not None:
            raise missing

    def _write(self, path: str, content: bytes) -> None:
        target = self._target(path)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as file:
                file.write(content)
        except OSError as error:  # also if the file has appeared since the check
            raise HostError(f"cannot write the guest's {path}: {error.strerror}", where=str(target)) from None
        print(f"copied the guest's {path} to {target} ({len(content)} bytes)", file=sys.stderr, flush=True)

    def _target(self, path: str) -> Path:
        return self.folder / PurePosixPath(path).name

    def _check_folder(self) -> None:
        there = next(place for place in (self.folder, *self.folder.absolute().parents) if os.path.lexists(place))
        if not there.is_dir():
            raise UsageError(
                "--get needs a folder, and this is a file", where=str(there), hint="name a folder: --out FOLDER"
            )
        if not os.access(there, os.W_OK | os.X_OK):
            raise UsageError("--get cannot write there", where=str(there), hint="name another folder: --out FOLDER")


def _instead(path: str) -> str:
    """A hint for an invalid path."""
    if path.startswith("/") and path.strip("/"):
        return f"leave out the slash at its end: {path.rstrip('/')}" if path.endswith("/") else ""
    return f"commands write their files to {SCRATCH}"


_NOT_FOUND = 127
"""Status of a missing program, from the guest's agent and from shells."""


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
    with options.building(offline=offline, verbose=verbose) as context:
        machine = choice.machine(context)
        with (
            log_folder(choice.console) as directory,
            _started(context, choice, Guest(machine, directory)) as guest,
            choice.leaving_core(context, guest),
        ):
            status = 0
            try:
                choice.prepare(guest)
                guest.make_folder(SCRATCH)
                limit = choice.timeout or one_guest.COMMAND_LIMIT
                with choice.debugged(context, guest):
                    status = guest.run(command, time_limit=limit, listener=_print).status
                if status == _NOT_FOUND:
                    print(_not_found(command[0], kernel_modules=choice.kernel_modules), file=sys.stderr)
                files.fetch(guest, limit)
            except GuestError as error:
                failure = one_guest.with_kernel_reports(error, guest)
                failure.exit_status = status or failure.exit_status
                raise failure from None
            guest.drain_console()
            trouble = one_guest.unexpected_trouble(guest)
            if trouble is not None:
                trouble.exit_status = status or trouble.exit_status
                raise trouble
    raise typer.Exit(status)


def _print(kind: Stream, data: bytes) -> None:
    stream = sys.stdout if kind is Stream.STDOUT else sys.stderr
    stream.buffer.write(data)
    stream.buffer.flush()


def _not_found(program: str, *, kernel_modules: bool) -> str:
    """The note for status 127, which shells also return for a missing program of their command."""
    words = f"note: status {_NOT_FOUND}: the guest lacks the program {program!r}, or one that it calls"
    if program.rpartition("/")[2] == "modprobe" and not kernel_modules:
        words += "\nhint: --kernel-modules adds modprobe and the kernel's own modules"
    return words
