# SPDX-License-Identifier: GPL-2.0-only
"""A worker of a fleet: its boots, the messages that it sends, and the facts of its machine."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker, get_worker
from pydantic import Field, ValidationError

from orchestrator import doctor
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.errors import LabError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.file_store import FileStore
from orchestrator.fleet.messages import BEGINS, LARGEST_FILE, MOST_BYTES, MOST_FILES, FileMessage, StepLine, sent
from orchestrator.fleet.state import MOST_GUESTS
from orchestrator.fleet.target import Unlisted
from orchestrator.fleet.transfer import FileReference, unbundled
from orchestrator.guest.guest_group import Guests
from orchestrator.guest.qemu_facts import qemu_version
from orchestrator.paths import cache_dir
from orchestrator.plain_text import counted
from orchestrator.results.contract import Record
from orchestrator.run.benchmark_kind import PROFILES_FOLDER, BootArtifacts, BootTask, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellRecorded, Event, Progress
from orchestrator.run.machines import timing_of
from orchestrator.steps import own_steps, step, step_source
from orchestrator.version import __version__

Send = Callable[[dict[str, object]], None]


class Boots:
    """The running boots of a worker."""

    def __init__(self, cache: Path) -> None:
        self.store = FileStore(cache)
        self._context = BuildContext(Cache(cache), offline=True)
        self._guests: dict[str, Guests] = {}
        """By attempt: running boots, and those aborted before they began."""

    def do(self, attempt: str, data: bytes, send: Send) -> None:
        """Do a boot, and send its reports. Raises LabError, or Stopped if it was aborted."""
        running = _Running(attempt, send, self._guests.setdefault(attempt, Guests()))
        try:
            running.do(data, self._context, self.store)
        finally:
            del self._guests[attempt]

    def abort(self, attempt: str) -> None:
        """End a boot's guests, from any thread, and thereby the boot. A boot that has not begun never does."""
        self._guests.setdefault(attempt, Guests()).end()

    def abort_all(self) -> None:
        for guests in list(self._guests.values()):
            guests.end()


class _Running:
    def __init__(self, attempt: str, send: Send, guests: Guests) -> None:
        self._attempt, self._send, self._guests = attempt, send, guests
        self._files = self._bytes = 0
        self._left_out: list[str] = []

    def do(self, data: bytes, context: BuildContext, store: FileStore) -> None:
        """Do it in a temporary folder."""
        self._tell(Progress(BEGINS))
        with ScratchFolder("orchestrator-boot-") as folder:
            task, artifacts = unbundled(data, store.place)
            assert isinstance(task, BootTask)
            assert isinstance(artifacts, BootArtifacts)
            task = dataclasses.replace(task, directory=folder / task.directory.name)
            if task.boot.clock == "wall":  # with this machine's accelerator, not the client's
                machine = dataclasses.replace(artifacts.machine, timing=timing_of(task.boot.guest))
                artifacts = dataclasses.replace(artifacts, machine=machine)
            context = dataclasses.replace(context, warn=lambda text: self._tell(Progress(text)))
            try:
                with (
                    own_steps(self._attempt, lambda line: self._send(sent(self._attempt, StepLine(line)))),
                    step_source(self._attempt),  # as for the client's own boots
                    step(f"boot {task.boot.guest.kernel} on {task.boot.guest.cpu}"),
                ):
                    run_boot(Session(task, artifacts, context, partial(self._emit, task.directory), self._guests.watch))
            finally:
                self._send_files(task.directory)

    def _emit(self, folder: Path, event: Event) -> None:
        if isinstance(event, CellRecorded):
            # A record's profile is written before the record is emitted.
            self._send_all(folder, (folder / PROFILES_FOLDER).glob("*"))
        self._tell(event)

    def _send_files(self, folder: Path) -> None:
        """Send all files, guests' logs first, and report which were left out."""
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        self._send_all(folder, iter(sorted(files, key=lambda path: (path.parent != folder, path))))
        if self._left_out:
            count, first = counted(len(self._left_out), "file"), self._left_out[0]
            bounds = f"{MOST_FILES} files, {MOST_BYTES >> 20} MiB in all, and {LARGEST_FILE >> 20} MiB each"
            self._tell(Progress(f"warning: {count} of the boot left out, such as {first}: a fleet carries {bounds}"))

    def _send_all(self, folder: Path, files: Iterator[Path]) -> None:
        for file in list(files):
            name, size = str(file.relative_to(folder)), file.stat().st_size
            if size > LARGEST_FILE or self._files == MOST_FILES or self._bytes + size > MOST_BYTES:
                self._left_out.append(name)
            else:
                self._files += 1
                self._bytes += size
                self._tell(FileMessage(name, file.read_bytes()))
            file.unlink()

    def _tell(self, body: Event | FileMessage) -> None:
        self._guests.check()
        if isinstance(body, Progress):
            body = Progress(body.text[:4000])
        self._send(sent(self._attempt, body))


class Versions(Record):
    """The program by version and content, Python's release, and QEMU."""

    project: str = Field(max_length=200)
    code: str = Field(pattern=r"^[0-9a-f]{16}$")
    """Digest of the package's files: checkouts of one version may differ."""
    python: str = Field(max_length=20)
    qemu: str = Field(max_length=200)

    @classmethod
    def here(cls) -> Versions:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return cls(project=__version__, code=_code(), python=python, qemu=qemu_version())

    def difference(self, worker: Versions) -> str | None:
        """What a worker has that differs, worded as part of a sentence; None if all is equal."""
        for name, what in _NAMES.items():
            here, there = getattr(self, name), getattr(worker, name)
            if here != there:
                return f"it has {what} {there}, and this machine has {here}"
        return None


_NAMES = {"project": "this program at version", "code": "this program with content", "python": "Python", "qemu": "QEMU"}


class Answer(Record):
    """A worker's answer: versions and its room for guests, or the ``problem`` that prevents it from working.

    ``memory_mib`` is for all of its ``guests``; ``cache`` says what is wrong with its cache folder, if anything.
    """

    name: str = Field(default="", pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,99})?$")
    versions: Versions | None = None
    guests: int = Field(default=0, ge=0, le=MOST_GUESTS)
    memory_mib: int = Field(default=0, ge=0, le=2**24)
    problem: str = Field(default="", max_length=4000)
    host: str = Field(default="", max_length=300)
    cache: str = Field(default="", max_length=5000)

    @classmethod
    def of(cls, said: object) -> Answer:
        """The answer in a worker's reply to ``examine``: JSON, or the error that came instead."""
        if said is None:
            return cls(problem="it has not answered")
        if isinstance(said, BaseException):
            return cls(problem=f"it cannot answer: {' '.join(str(said).split())[:300] or type(said).__name__}")
        try:
            return cls.model_validate_json(str(said))
        except ValidationError:
            return cls(problem="its answer is invalid: its program is of another version")


@lru_cache(maxsize=1)
def _code() -> str:
    package = Path(__file__).resolve().parents[1]
    total = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.is_file() and file.suffix not in {".pyc", ".pyo"}:
            total.update(f"{file.relative_to(package)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


class _Forgotten(WorkerPlugin):
    """Ends boots whose tasks Dask forgets: cancelling a future stops no thread."""

    def __init__(self, boots: Boots) -> None:
        self._boots = boots

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if start in ("executing", "long-running") and finish not in ("memory", "error"):
            self._boots.abort(str(key))


class FleetWorker(Unlisted, Worker):
    """Dask's worker with its boots, room for so many guests and MiB, and without its HTTP server.

    It ends its guests first, not after Dask's wait of half a minute.
    """

    def __init__(self, scheduler: str, boots: Boots, room: tuple[int, int], **options: Any) -> None:
        self.boots, self.room = boots, room
        super().__init__(scheduler, plugins=(_Forgotten(boots),), **options)

    async def close(self, *args: Any, **kwargs: Any) -> Any:
        self.boots.abort_all()
        return await super().close(*args, **kwargs)


def do_boot(attempt: str, topic: str, data: bytes) -> None:
    """On a worker, as a task: do a boot, sending its messages on a topic. Raises what ends it."""
    worker = get_worker()
    assert isinstance(worker, FleetWorker)
    worker.boots.do(attempt, data, lambda message: worker.log_event(topic, message))


async def examine(dask_worker: FleetWorker) -> str:
    """On a worker: its answer as JSON."""
    guests, memory_mib = dask_worker.room
    room = {"name": dask_worker.name, "guests": guests, "memory_mib": memory_mib}
    return (await asyncio.to_thread(_examined, room)).model_dump_json()


def _examined(room: dict[str, Any]) -> Answer:
    cache = doctor.folder("cache", cache_dir(), "ORCHESTRATOR_CACHE")
    said = "" if cache.status is doctor.Status.OK else f"{cache.text}: {cache.remedy}"
    facts: dict[str, Any] = {"host": socket.gethostname(), "cache": said}
    try:
        return Answer(versions=Versions.here(), **room, **facts)
    except LabError as error:
        return Answer(problem=error.what, **facts)


async def missing(references: Sequence[FileReference], dask_worker: FleetWorker) -> list[FileReference]:
    """On a worker: the references whose files must be sent."""
    return await asyncio.to_thread(dask_worker.boots.store.missing, references)


async def receive(reference: FileReference, offset: int, piece: bytes, sender: str, dask_worker: FleetWorker) -> None:
    """On a worker: receive a piece of a file. Raises HostError if the disk is full, LabError for an invalid piece."""
    await asyncio.to_thread(dask_worker.boots.store.receive, reference, offset, piece, sender)
