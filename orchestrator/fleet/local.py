# SPDX-License-Identifier: GPL-2.0-only
"""How a fleet's keeper is started and ended, and the bounded log of its processes."""

from __future__ import annotations

import asyncio
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.state import (
    STAY,
    WORKER_FOLDER,
    FleetState,
    Orders,
    Report,
    known_fleets,
    log_file,
    process_start,
    state_file,
    stored,
)
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.plain_text import plain_line
from orchestrator.program import PROGRAM

# The log of a fleet's processes: what they and Dask print goes to a file of bounded size, and to no terminal.

LARGEST = 1 << 20
_KEPT = LARGEST // 4
_LONGEST_LINE = 1000
_QUOTED = 8
_READ = 64 << 10
_INTERVAL = 5.0
_ERROR = re.compile(r"[A-Za-z_][A-Za-z_.]*(Error|Exception): ")
"""The last line of a traceback."""


class KeptLog:
    """A log that other processes append to, too. It is shortened from its beginning when it has become too long."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._lock = threading.Lock()

    def line(self, source: str, text: str) -> None:
        """Append a line that came from elsewhere: bounded, and with nothing in it that a terminal obeys."""
        shown = plain_line(text[:_LONGEST_LINE])
        os.write(self.descriptor, f"{source}: {shown}\n".encode(errors="replace"))
        self.shorten()

    def shorten(self) -> None:
        """Keep the last quarter of a log that is too long. What is appended meanwhile may be lost."""
        with self._lock:
            size = os.fstat(self.descriptor).st_size
            if size > LARGEST:
                kept = os.pread(self.descriptor, _KEPT, size - _KEPT)
                os.ftruncate(self.descriptor, 0)
                os.write(self.descriptor, b"...\n" + kept.partition(b"\n")[2])

    async def tend(self) -> None:
        """Shorten it every few seconds, until this is cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            self.shorten()

    def empty(self) -> None:
        """Begin anew."""
        os.ftruncate(self.descriptor, 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)


def told(file: Path, source: str = "") -> Sequence[str]:
    """What the end of a log says went wrong, to be quoted: errors in a sentence each, without their tracebacks.

    With a ``source`` it is the last lines that came from there; so it is where there are no errors.
    """
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, opened.seek(0, os.SEEK_END) - _READ))
            text = opened.read().decode(errors="replace")
    except OSError:
        return []
    lines = [line[:_LONGEST_LINE] for line in text.splitlines() if line.strip()]
    if source:
        lines = [line for line in lines if line.startswith(f"{source}: ")]
    errors = list(dict.fromkeys(line for line in lines if _ERROR.match(line)))
    return (errors or lines)[-_QUOTED:]


@contextmanager
def output_into(log: KeptLog) -> Iterator[TextIO]:
    """Send this process's standard output and errors, and those of all that it starts, to the log.

    The stream is the standard error that was there before.
    """
    before = [os.dup(1), os.dup(2)]
    try:
        with os.fdopen(os.dup(2), "w", buffering=1, errors="backslashreplace") as stream:
            for number in (1, 2):
                os.dup2(log.descriptor, number)
            yield stream
    finally:
        for number, was in zip((1, 2), before, strict=True):
            os.dup2(was, number)
            os.close(was)


# How a fleet's keeper is started, and how it is ended: that process and no other.

_SCRATCH = (WORKER_FOLDER, "orchestrator-boot-")
_END_LIMIT = 60.0
"""Seconds for a keeper to end its workers, which end their guests; Dask kills a worker after nine."""


class StartedFleet:
    """A keeper that was started. It ends with this process, unless ``let_stay`` was called."""

    def __init__(self, orders: Orders) -> None:
        """Raises UsageError where a fleet of that name runs."""
        if orders.name in known_fleets() and stored(orders.name).is_running:
            raise UsageError(
                f"fleet '{orders.name}' runs already",
                where=str(state_file(orders.name)),
                hint=f"`{PROGRAM} fleet status {orders.name}` shows it, `{PROGRAM} fleet down {orders.name}` ends it,"
                " and --name starts another one beside it",
            )
        self._orders = orders
        log = KeptLog(log_file(orders.name))
        self._keeper = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.fleet.keeper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.descriptor,
            cwd=log.file.parent,  # the caller's may be removed before the fleet ends
            env=_environment(),
            umask=0o077,
            start_new_session=True,
        )
        log.close()
        with suppress(BrokenPipeError):  # one that has ended at once: see ``reports``
            self._tell(orders.line())

    def reports(self) -> Iterator[Report]:
        """What becomes of it, until all is known. Raises HostError where the keeper has to end."""
        assert self._keeper.stdout is not None
        for line in self._keeper.stdout:
            report = Report.of_line(line)
            if report.kind == "refused":
                raise HostError(report.text, hint=report.hint)
            if report.kind == "ready":
                return
            yield report
        raise self._gone()

    def let_stay(self) -> None:
        """Let it go on when this process has ended. Raises LabError where it has not waited for that."""
        try:
            self._tell(STAY)
        except BrokenPipeError:
            raise self._gone() from None

    def _tell(self, line: bytes) -> None:
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(line)
        self._keeper.stdin.flush()

    def _gone(self) -> LabError:
        log = log_file(self._orders.name)
        return LabError("the fleet's keeper has ended", where=str(log), detail=told(log))

    def end(self) -> None:
        """End it with all that it has started, and wait for that."""
        for stream in (self._keeper.stdin, self._keeper.stdout):
            if stream is not None and not stream.closed:
                with suppress(OSError):
                    stream.close()

        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_END_LIMIT)


def end_fleet(state: FleetState) -> bool:
    """End a fleet's keeper, and with it scheduler and workers; whether it was there. Nothing of it is left.

    Raises LabError where it does not end.
    """
    was_running = _end_process(state.keeper, state.started)
    state_file(state.name).unlink(missing_ok=True)
    for prefix in _SCRATCH:  # what killed processes have left
        ScratchFolder(prefix).close()
    return was_running


def _end_process(pid: int, started: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        # Behind this check it can only be the one that is meant: the descriptor keeps its number from passing on.
        if process_start(pid) != started:
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], _END_LIMIT)[0]:
                return True
    finally:
        os.close(process)
    raise LabError(f"the fleet's keeper, process {pid}, does not end, though it was killed")


def _environment() -> dict[str, str]:
    """Ours, which is to mean the same in another folder."""
    own = {**os.environ, "ORCHESTRATOR_LAB": str(lab_dir()), "ORCHESTRATOR_CACHE": str(cache_dir())}
    if own.get("PYTHONPATH"):
        own["PYTHONPATH"] = os.pathsep.join(str(Path(one).absolute()) for one in own["PYTHONPATH"].split(os.pathsep))
    return own
