# SPDX-License-Identifier: GPL-2.0-only
"""A worker's side of a boot: files from the warehouse, messages to the client, an end when it is not wanted."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.counted import counted
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.fleet.messages import (
    BEGINS,
    LARGEST_FILE,
    MOST_BYTES,
    MOST_FILES,
    MOST_STEPS,
    FileMessage,
    Steps,
    sent,
)
from orchestrator.fleet.parcel import unpacked
from orchestrator.fleet.warehouse import Warehouse
from orchestrator.guest.guest import Guest
from orchestrator.run.artifacts import BootArtifacts
from orchestrator.run.boot import PROFILES_FOLDER, BootTask, Session, run_boot
from orchestrator.run.events import Event, Outcome, Progress
from orchestrator.run.machines import timing_of
from orchestrator.scratch import ScratchFolder
from orchestrator.steps import own_steps, step, step_source

_MOST_ABORTED = 100
"""Boots that are remembered to have been ended before they began: as many as there may be on a worker, by far."""

Send = Callable[[dict[str, object]], None]


class Unwanted(BaseException):
    """The client has gone, or has cancelled the boot. Not an error, and not to be caught as one."""


class Boots:
    """The boots under way on a worker."""

    def __init__(self, cache: Path) -> None:
        self.warehouse = Warehouse(cache)
        self._context = BuildContext(Cache(cache), offline=True)
        self._lock = threading.Lock()
        self._running: dict[str, _Running] = {}
        self._aborted: deque[str] = deque(maxlen=_MOST_ABORTED)

    def do(self, attempt: str, data: bytes, send: Send) -> dict[str, object]:
        """Do a boot, and send what it reports. How it ended, as plain data: ``messages`` is how many were sent."""
        running = _Running(attempt, send)
        with self._lock:
            self._running[attempt] = running
            is_unwanted = attempt in self._aborted
        if is_unwanted:
            running.abort()
        try:
            return running.do(data, self._context, self.warehouse)
        finally:
            with self._lock:
                del self._running[attempt]

    def abort(self, attempt: str) -> None:
        """End a boot's guests, from any thread; the boot then ends. One that is about to begin does not."""
        with self._lock:
            running = self._running.get(attempt)
            if running is None:  # Dask has given it to a thread, which has not come to ``do`` yet
                self._aborted.append(attempt)
        if running is not None:
            running.abort()

    def abort_all(self) -> None:
        """End all guests."""
        with self._lock:
            attempts = list(self._running)
        for attempt in attempts:
            self.abort(attempt)


class _Running:
    """One boot under way."""

    def __init__(self, attempt: str, send: Send) -> None:
        self._attempt, self._send = attempt, send
        self._lock = threading.Lock()
        self._guests: list[Guest] = []
        self._is_unwanted = False
        self._sent = 0
        self._files = 0
        self._bytes = 0
        self._left_out: list[str] = []
        self._steps: deque[tuple[float, str]] = deque(maxlen=MOST_STEPS)

    def do(self, data: bytes, context: BuildContext, warehouse: Warehouse) -> dict[str, object]:
        """Do it in a folder of its own, which is removed at its end."""
        try:
            self._tell(Progress(BEGINS))
            with ScratchFolder("orchestrator-boot-") as folder:
                task, artifacts = unpacked(data, warehouse.place)
                assert isinstance(task, BootTask)
                assert isinstance(artifacts, BootArtifacts)
                task = dataclasses.replace(task, directory=folder / task.directory.name)
                if task.boot.clock == "wall":  # by the accelerator of this machine, not of the client's
                    machine = dataclasses.replace(artifacts.machine, timing=timing_of(task.boot))
                    artifacts = dataclasses.replace(artifacts, machine=machine)
                context = dataclasses.replace(context, warn=lambda text: self._tell(Progress(text)))
                try:
                    self._boot(Session(task, artifacts, context, self._emitter(task), self._watch))
                finally:
                    self._send_files(task.directory)
        except LabError as error:
            end = "host" if isinstance(error, HostError) else "usage" if isinstance(error, UsageError) else "error"
            return self._ended(end, what=error.what, where=error.where, hint=error.hint, detail=list(error.detail))
        except Unwanted:
            return self._ended("unwanted")
        except Exception as error:  # of the worker's: the client tells it, and the worker serves others
            return self._ended("error", what=f"{type(error).__name__}: {error}", where="", hint="", detail=[])
        return self._ended("done")

    def _boot(self, session: Session) -> None:
        """Do it, with its steps as the client's own boots have them."""
        boot = session.task.boot
        with (
            own_steps(self._attempt, lambda line: self._steps.append((time.monotonic(), line))),
            step_source(self._attempt),
            step(f"boot {boot.kernel} on {boot.cpu}"),
        ):
            run_boot(session)

    def abort(self) -> None:
        with self._lock:
            self._is_unwanted = True
            guests = list(self._guests)
        for guest in guests:
            guest.abort()

    def _emitter(self, task: BootTask) -> Callable[[Event], None]:
        def emit(event: Event) -> None:
            if isinstance(event, Outcome):
                # A record's profile is there before the record is.
                self._send_all(task.directory, (task.directory / PROFILES_FOLDER).glob("*"))
            self._tell(event)

        return emit

    def _send_files(self, folder: Path) -> None:
        """Send all that is there, guests' logs first, and say what was left out of all that was."""
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        self._send_all(folder, iter(sorted(files, key=lambda path: (path.parent != folder, path))))
        if self._left_out:
            count, first = counted(len(self._left_out), "file"), self._left_out[0]
            bounds = f"{MOST_FILES} files, {MOST_BYTES >> 20} MiB in all, and {LARGEST_FILE >> 20} MiB each"
            self._tell(Progress(f"warning: {count} of the boot left out, {first} for one: a fleet carries {bounds}"))

    def _send_all(self, folder: Path, files: Iterator[Path]) -> None:
        for file in list(files):
            name, size = str(file.relative_to(folder)), file.stat().st_size
            if size > LARGEST_FILE or self._files == MOST_FILES or self._bytes + size > MOST_BYTES:
                self._left_out.append(name)
            else:
                self._files += 1
                self._bytes += size
                self._tell(FileMessage(name=name, content=file.read_bytes()))
            file.unlink()

    def _tell(self, body: Event | FileMessage) -> None:
        if self._is_unwanted:
            raise Unwanted
        self._send(sent(self._attempt, self._sent, body, self._new_steps()))
        self._sent += 1

    def _watch(self, guest: Guest) -> None:
        with self._lock:
            self._guests.append(guest)
        if self._is_unwanted:
            raise Unwanted

    def _new_steps(self) -> Steps:
        now = time.monotonic()
        written = [self._steps.popleft() for _ in range(len(self._steps))]
        return tuple((now - at, line) for at, line in written)

    def _ended(self, end: str, **details: Any) -> dict[str, object]:
        steps = [list(line) for line in self._new_steps()]
        return {"end": end, "messages": self._sent, "steps": steps, **details}
