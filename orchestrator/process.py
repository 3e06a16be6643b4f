# SPDX-License-Identifier: GPL-2.0-only
"""Child processes that die with this one, and that the terminal's Ctrl-C does not reach.

Each child has its own session and the parent-death signal, set by util-linux's ``setpriv``, so that no Python code
runs between fork and exec. The kernel sends the signal when the *thread* that started the child ends: start children
from threads that outlive them.
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
from typing import IO, Any, Self, TypeVar

from orchestrator.deadline import Deadline
from orchestrator.errors import HostError, LabError
from orchestrator.program import PROGRAM
from orchestrator.steps import step

_DIE_WITH_PARENT = ("sh", str(Path(__file__).with_name("die-with-parent.sh")))
# Without the script's check one of forty killed parents left a QEMU.
_START = ("setpriv", "--pdeathsig", "TERM", "sh", str(Path(__file__).with_name("with-parent.sh")))

T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """A program that has ended: its exit status (negative: killed by that signal) and what it printed."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str

    def complaint(self) -> tuple[str, ...]:
        """The command, ready to be pasted, the last lines it printed, and the signal that killed it."""
        printed = (self.stderr.strip() or self.stdout.strip()).splitlines()[-15:]
        # The shell around a program reports the signal that killed the program, but not its own.
        killed = (f"(killed by signal {-self.status})",) if self.status < 0 else ()
        return (f"$ {shlex.join(self.argv)}", *printed, *killed)

    def or_raise(self, error: type[LabError], what: str, *, where: str = "", hint: str = "") -> Self:
        if self.status != 0:
            raise error(what, where=where, detail=self.complaint(), hint=hint)
        return self


class Spawned:
    """A program that runs beside this process and dies with it, whatever user it becomes. Any thread may kill it."""

    def __init__(self, shell: subprocess.Popen[bytes], pid: int) -> None:
        self._shell = shell
        self.pid = pid
        # The kernel may reuse a process number, but not a pidfd.
        self._process: int | None = None
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            self._process = os.pidfd_open(pid)
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._shell.poll()

    def wait(self, patience: float) -> int:
        return self._shell.wait(patience)

    def kill(self) -> None:
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._process is not None:
                signal.pidfd_send_signal(self._process, signal.SIGKILL)

    def close(self) -> None:
        self.kill()
        self._shell.send_signal(signal.SIGCONT)  # a stopped shell would not notice that the program ended
        self._shell.wait()
        with self._lock:
            if self._process is not None:
                os.close(self._process)
            self._process = None


def spawn(
    argv: Sequence[str],
    *,
    limits: Mapping[str, int] | None = None,
    environment: Mapping[str, str] | None = None,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
) -> Spawned:
    """Start a program that has no children, in ``/``; ``limits`` are by prlimit's names. Raises HostError."""
    limited = ("prlimit", *(f"--{name}={value}" for name, value in (limits or {}).items())) if limits else ()
    settings = {"stderr": stderr, "pass_fds": tuple(pass_fds), "cwd": "/", "umask": 0o077, "env": environment}
    with _start_errors(argv[0]):
        shell = _started([*limited, "sh", str(Path(__file__).with_name("spawned.sh")), *argv], **settings)
        try:
            assert shell.stdout is not None
            with shell.stdout as output:
                number = output.readline()
            if not number:
                raise HostError(f"cannot start {argv[0]}: prlimit (util-linux) or sh does not run")
            return Spawned(shell, int(number))
        except BaseException:
            kill_group(shell)
            raise


def run(
    argv: Sequence[str],
    *,
    time_limit: float,
    cwd: Path | None = None,
    environment: Mapping[str, str | None] | None = None,
    pass_fds: Sequence[int] = (),
    listener: Callable[[str], None] | None = None,
) -> Finished:
    """Run a program to its end within ``time_limit`` seconds (see ``Deadline``), and log it as a step.

    What it prints is English (LC_ALL), whatever the user's language: others read it. ``environment`` changes this
    process's: a value of None removes a variable. ``listener`` gets each line of the program's standard output as it
    comes. Processes that the program leaves behind are killed.

    Raises HostError when the program is not installed, LabError when the time is over.
    """
    changed = {**os.environ, "LC_ALL": "C", **(environment or {})}
    with step("$", *argv) as running:
        kept = {name: value for name, value in changed.items() if value is not None}
        with _start_errors(argv[0]):
            child = _started(
                [*_DIE_WITH_PARENT, *argv], stderr=subprocess.PIPE, pass_fds=tuple(pass_fds), cwd=cwd, env=kept
            )
        try:
            stdout, stderr = _communicate(child, Deadline(time_limit), listener)
        except subprocess.TimeoutExpired:
            command = f"$ {shlex.join(argv)}"
            raise LabError(f"{argv[0]} did not end within {time_limit:g} s", detail=[command]) from None
        finally:
            kill_group(child)
        if child.returncode == 127 and b"not found" in stderr:
            raise not_installed(argv[0])
        running.note(f"status {child.returncode}")
    return Finished(tuple(argv), child.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))


def exit_status(child: Spawned, time_limit: float) -> int | None:
    """The exit status of a child that ends within ``time_limit`` seconds (see ``Deadline``), else None."""
    try:
        return _ended(child.wait, Deadline(time_limit))
    except subprocess.TimeoutExpired:
        return None


def stat_fields(pid: int | str) -> list[str]:
    """A process's fields of proc_pid_stat(5) behind its name, the state first; none if it is gone or not readable."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def how_ended(status: int) -> str:
    """``status 1``, or ``signal 9``."""
    return f"status {status}" if status >= 0 else f"signal {-status}"


def _communicate(
    child: subprocess.Popen[bytes], deadline: Deadline, listener: Callable[[str], None] | None
) -> tuple[bytes, bytes]:
    if listener is None:
        return _ended(lambda seconds: child.communicate(timeout=seconds), deadline)
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
        _, errors = _ended(lambda seconds: child.communicate(timeout=seconds), deadline)
    finally:
        kill_group(child)
        reader.join()
        output.close()
    return b"".join(lines), errors


def _ended(wait: Callable[[float], T], deadline: Deadline) -> T:
    """Repeat a wait for a child's end until the deadline. Raises subprocess.TimeoutExpired then."""
    while True:
        try:
            return wait(deadline.pause())
        except subprocess.TimeoutExpired:
            if not deadline.left():
                raise


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a child's whole process group, if the child was not reaped yet, and reap the child."""
    if child.poll() is None:
        # The child leads its group and is not reaped, so its number is not reused.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for stream in (child.stdout, child.stderr, child.stdin):
        if stream is not None:
            stream.close()


def _started(argv: Sequence[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Start a child in its own session that ends with this process; ``settings`` are further arguments of Popen."""
    settings |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "start_new_session": True}
    return subprocess.Popen([*_START, str(os.getpid()), *argv], **settings)


@contextlib.contextmanager
def _start_errors(program: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise not_installed("setpriv (util-linux)") from None
    except OSError as error:
        raise HostError(f"cannot start {program}: {error.strerror}") from error


def not_installed(program: str) -> HostError:
    """The error for a missing program."""
    return HostError(f"{program} is not installed", hint=f"`{PROGRAM} doctor` says what is missing and how to get it")
