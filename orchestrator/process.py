# SPDX-License-Identifier: GPL-2.0-only
"""Child processes that die with us, however we die, and that the terminal's Ctrl-C does not reach.

Every child gets a session of its own and the parent-death signal, which util-linux's ``setpriv`` sets: no code of
ours runs between fork and exec. The kernel sends that signal when the *thread* that started the child ends, so
children are started from threads that outlive them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.deadline import Deadline
from orchestrator.errors import HostError, LabError
from orchestrator.steps import step

_KILLED_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")
_ENDED_WITH_PARENT = ("setpriv", "--pdeathsig", "TERM", "sh", str(Path(__file__).with_name("die-with-parent.sh")))
_QUOTED_LINES = 15


@dataclass(frozen=True)
class Finished:
    """A program that has ended: its exit status (negative: killed by that signal) and what it printed."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    def complaint(self) -> tuple[str, ...]:
        """The command, ready to be pasted, and the last lines it printed."""
        printed = (self.stderr.strip() or self.stdout.strip()).splitlines()[-_QUOTED_LINES:]
        return (f"$ {shlex.join(self.argv)}", *printed)


def spawn(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start one program that is killed when we end. It must not start programs of its own."""
    with _start_errors(argv[0]):
        return subprocess.Popen(
            [*_KILLED_WITH_PARENT, *argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=tuple(pass_fds),
            start_new_session=True,
        )


def run(
    argv: Sequence[str],
    *,
    time_limit: float,
    cwd: Path | None = None,
    environment: Mapping[str, str | None] | None = None,
    listener: Callable[[str], None] | None = None,
) -> Finished:
    """Run a program and all that it starts to its end, within ``time_limit`` seconds; a step of the log.

    ``environment`` changes ours for it: a variable is set, or with None taken away. A ``listener`` gets each line of
    the program's standard output as it comes. See ``Deadline`` for what counts of the time.

    Raises HostError when the program is not there, LabError when the time is over.
    """
    with step("$", *argv) as running:
        with _start_errors(argv[0]):
            child = subprocess.Popen(
                [*_ENDED_WITH_PARENT, *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=cwd,
                env=_changed_environment(environment or {}),
                start_new_session=True,
            )
        try:
            stdout, stderr = _communicate(child, Deadline(time_limit), listener)
        except subprocess.TimeoutExpired:
            command = f"$ {shlex.join(argv)}"
            raise LabError(f"{argv[0]} did not end within {time_limit:g} s", detail=[command]) from None
        finally:
            kill_group(child)
        if child.returncode == 127 and b"not found" in stderr:
            raise _missing(argv[0])
        running.note(f"status {child.returncode}")
    return Finished(tuple(argv), child.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def exit_status(child: subprocess.Popen[bytes], time_limit: float) -> int | None:
    """The exit status of a child that ends within ``time_limit`` seconds (see ``Deadline``), else None."""
    deadline = Deadline(time_limit)
    while True:
        try:
            return child.wait(deadline.pause())
        except subprocess.TimeoutExpired:
            if not deadline.left():
                return None


def _communicate(
    child: subprocess.Popen[bytes], deadline: Deadline, listener: Callable[[str], None] | None
) -> tuple[bytes, bytes]:
    if listener is None:
        return _ended(child, deadline)
    assert child.stdout is not None
    output = child.stdout
    child.stdout = None  # communicate() then reads only the errors
    lines: list[bytes] = []

    def listen() -> None:
        for line in output:
            lines.append(line)
            listener(line.decode(errors="replace").rstrip("\n"))

    reader = threading.Thread(target=listen, daemon=True)
    reader.start()
    try:
        _, errors = _ended(child, deadline)
    finally:
        kill_group(child)
        reader.join()
        output.close()
    return b"".join(lines), errors


def _ended(child: subprocess.Popen[bytes], deadline: Deadline) -> tuple[bytes, bytes]:
    """What a child printed, once it has ended. Raises subprocess.TimeoutExpired at the deadline."""
    while True:
        try:
            return child.communicate(timeout=deadline.pause())
        except subprocess.TimeoutExpired:
            if not deadline.left():
                raise


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a child's whole process group, if the child was not reaped yet, and reap the child."""
    if child.poll() is None:
        # The child leads its group and is not reaped, so the number cannot have passed to a stranger.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for stream in (child.stdout, child.stderr, child.stdin):
        if stream is not None:
            stream.close()


@contextlib.contextmanager
def _start_errors(program: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise _missing("setpriv (util-linux)") from None
    except OSError as error:
        raise HostError(f"cannot start {program}: {error.strerror}") from error


def _changed_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in {**os.environ, **changes}.items() if value is not None}


def _missing(program: str) -> HostError:
    return HostError(f"{program} is not installed", hint="`./lab doctor` says what is missing and how to get it")
