# SPDX-License-Identifier: GPL-2.0-only
"""A worker of a fleet: the boots that it does, the messages that it sends, and the facts of its machine."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import os
import re
import shutil
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import Worker, get_worker
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from orchestrator import __version__
from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.fleet.parcel import Reference, Warehouse, unpacked
from orchestrator.fleet.state import MOST_GUESTS
from orchestrator.fleet.target import Unlisted
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import qemu_version
from orchestrator.paths import cache_dir
from orchestrator.plain_text import counted
from orchestrator.results.contract import CellId, CellRecord
from orchestrator.run.boot import (
    PROFILES_FOLDER,
    BootArtifacts,
    BootTask,
    CellBegan,
    Event,
    GuestBooted,
    Outcome,
    Progress,
    Session,
    run_boot,
)
from orchestrator.run.crew import Stopped
from orchestrator.run.machines import timing_of
from orchestrator.steps import own_steps, step, step_source

# What a worker tells the client of a boot: validated on arrival, bounded, and without any path.
#
# A message is what msgpack can carry: texts, numbers, bytes. The contract's own models check records.

BEGINS = "begins"
"""The progress that each boot reports first."""

LARGEST_FILE = 64 << 20
MOST_FILES = 4000
MOST_BYTES = 512 << 20
"""Of all files of one attempt at a boot, as MOST_FILES is: a worker sends no more, and a client keeps no more."""

LARGEST_MESSAGE = 8 << 20

# 255 bytes is the longest name that Linux takes, and write_whole() adds five while it writes.
_FILE_NAME = re.compile(r"((events|profiles)/)?(?!(events|profiles)$)[A-Za-z0-9][A-Za-z0-9._+@=,-]{0,249}")

MOST_STEPS = 10_000
"""Lines that a message has with it: a boot has some fifty, and five for each cell."""

_Line = Annotated[str, StringConstraints(max_length=4000)]
_Word = Annotated[str, StringConstraints(max_length=70_000)]


Steps = tuple[tuple[float, str], ...]
"""Lines of a log of steps, each with the seconds since it was written."""

CheckedSteps = Annotated[
    tuple[tuple[Annotated[float, Field(ge=0, lt=1e6)], Annotated[str, StringConstraints(max_length=1000)]], ...],
    Field(max_length=MOST_STEPS),
]
_STEPS = TypeAdapter[Steps](CheckedSteps)


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _ProgressMessage(_Message):
    kind: Literal["progress"] = "progress"
    text: _Line


class _BeganMessage(_Message):
    kind: Literal["began"] = "began"
    cell: CellId


class _BootedMessage(_Message):
    kind: Literal["booted"] = "booted"
    name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+@-]*$", max_length=250)]
    command_line: tuple[_Word, ...] = Field(max_length=1000)
    work: dict[_Line, _Line] = Field(max_length=100)
    restored_from: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,64}$")] | None


class _OutcomeMessage(_Message):
    kind: Literal["outcome"] = "outcome"
    record: CellRecord
    is_compared: bool


_MESSAGES: Mapping[type[Event], type[_Message]] = {
    Progress: _ProgressMessage,
    CellBegan: _BeganMessage,
    GuestBooted: _BootedMessage,
    Outcome: _OutcomeMessage,
}
_EVENTS = {message: event for event, message in _MESSAGES.items()}
_AnyMessage = TypeAdapter[_Message](
    Annotated[_ProgressMessage | _BeganMessage | _BootedMessage | _OutcomeMessage, Field(discriminator="kind")]
)


class FileMessage(_Message):
    """A file that a boot leaves, by its name in the boot's folder: ``guest1-pentium4-debian-686.console``."""

    name: str
    content: bytes = Field(max_length=LARGEST_FILE)

    def checked_name(self) -> str:
        """The name. Raises LabError where it could lead out of the boot's folder, or be no file's there."""
        if not _FILE_NAME.fullmatch(self.name):
            raise LabError(f"a worker sent a file called {self.name[:100]!r}")
        return self.name


@dataclass(frozen=True)
class Received:
    """A message of one attempt at a boot, with its number in the attempt, from 0 on."""

    attempt: str
    number: int
    body: Event | FileMessage
    steps: Steps = ()


def sent(attempt: str, number: int, body: Event | FileMessage, steps: Steps = ()) -> dict[str, object]:
    """A message as it travels, with the lines that the log of the boot's steps got since the message before."""
    return {"attempt": attempt, "number": number, "steps": [list(line) for line in steps], **_content(body)}


def _content(body: Event | FileMessage) -> dict[str, object]:
    if isinstance(body, FileMessage):
        return {"name": body.name, "content": body.content}
    if isinstance(body, Progress):
        body = Progress(body.text[:4000])
    fields = {name: value for name, value in vars(body).items() if name != "worker"}  # the client knows whose it is
    return {"text": _MESSAGES[type(body)].model_construct(**fields).model_dump_json()}


def received(message: object) -> Received:
    """A message that came. Raises LabError for anything that none of ours is."""
    try:
        if not isinstance(message, Mapping):
            raise ValueError("no message")
        attempt, number = message["attempt"], message["number"]
        if not (isinstance(attempt, str) and len(attempt) <= 100 and isinstance(number, int)):
            raise ValueError("of no attempt")
        if "content" in message:
            body: Event | FileMessage = FileMessage(name=message["name"], content=message["content"])
        else:
            text = message["text"]
            if not isinstance(text, str) or len(text) > LARGEST_MESSAGE:
                raise ValueError("too long")
            found = _AnyMessage.validate_json(text)
            body = _EVENTS[type(found)](**{name: value for name, value in found if name != "kind"})
        steps = _STEPS.validate_python(message["steps"])
    except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise LabError("a worker sent what is no message", detail=str(error).splitlines()[:5]) from None
    return Received(attempt, number, body, steps)


class Result(BaseModel):
    """How a worker says that a boot ended."""

    model_config = ConfigDict(extra="forbid")

    end: str = Field(pattern=r"^(done|host|usage|error|unwanted)$")
    messages: int = Field(ge=0)
    what: str = Field(default="", max_length=100_000)
    where: str = Field(default="", max_length=10_000)
    hint: str = Field(default="", max_length=10_000)
    detail: list[str] = Field(default=[], max_length=1000)
    steps: CheckedSteps = ()


# A worker's side of a boot: files from the warehouse, messages to the client, an end when it is not wanted.

_MOST_ABORTED = 100
"""Boots that are remembered to have been ended before they began: as many as there may be on a worker, by far."""

Send = Callable[[dict[str, object]], None]


class Guests:
    """Guests, each in a thread of its own, that end together: those of a boot, and those of the client itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: list[Guest] = []
        self.has_ended = False

    def watch(self, guest: Guest) -> None:
        """In a guest's thread, before it runs. Raises Stopped where they have ended."""
        with self._lock:
            self._guests.append(guest)
        self.check()

    def check(self) -> None:
        """Raise Stopped where they have ended."""
        if self.has_ended:
            raise Stopped

    def end(self) -> None:
        """End all of them, from any thread; none begins any more."""
        with self._lock:
            self.has_ended = True
            guests = list(self._guests)
        for guest in guests:
            guest.abort()


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
            running.guests.end()
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
            running.guests.end()

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
        self.guests = Guests()
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
                    self._boot(Session(task, artifacts, context, self._emitter(task), self.guests.watch))
                finally:
                    self._send_files(task.directory)
        except LabError as error:
            end = "host" if isinstance(error, HostError) else "usage" if isinstance(error, UsageError) else "error"
            return self._ended(end, what=error.what, where=error.where, hint=error.hint, detail=list(error.detail))
        except Stopped:  # the client has gone, or has cancelled the boot
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
        self.guests.check()
        self._send(sent(self._attempt, self._sent, body, self._new_steps()))
        self._sent += 1

    def _new_steps(self) -> Steps:
        now = time.monotonic()
        written = [self._steps.popleft() for _ in range(len(self._steps))]
        return tuple((now - at, line) for at, line in written)

    def _ended(self, end: str, **details: Any) -> dict[str, object]:
        steps = [list(line) for line in self._new_steps()]
        return {"end": end, "messages": self._sent, "steps": steps, **details}


# What has to be equal on a worker and its client before a number of the one is a number of the other's run.

_NO_CODE = {".pyc", ".pyo"}


class Versions(BaseModel):
    """The program by version and content, Python's release, and QEMU."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str = Field(max_length=200)
    code: str = Field(pattern=r"^[0-9a-f]{16}$")
    """Of the package's files: checkouts of one version differ."""
    python: str = Field(max_length=20)
    qemu: str = Field(max_length=200)

    @classmethod
    def here(cls) -> Versions:
        """Of this process. Raises HostError where QEMU is missing."""
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return cls(project=__version__, code=_code(), python=python, qemu=qemu_version())

    def difference(self, worker: Versions) -> str | None:
        """What a worker has that is not this, as a part of a sentence; None where all is equal."""
        for name, what in _NAMES.items():
            here, there = getattr(self, name), getattr(worker, name)
            if here != there:
                return f"it has {what} {there}, and this machine has {here}"
        return None


_NAMES = {"project": "this program at version", "code": "this program with content", "python": "Python", "qemu": "QEMU"}


class Offer(BaseModel):
    """What a worker says of itself: its name, versions, and the room for guests: how many, and MiB for all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    versions: Versions
    guests: int = Field(ge=1, le=MOST_GUESTS)
    memory_mib: int = Field(ge=1, le=2**24)


class Answer(BaseModel):
    """What a worker says: its offer, or why it has none; its host's name; its cache, with MB that are free."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    offer: Offer | None = None
    problem: str = Field(default="", max_length=4000)
    host: str = Field(default="", max_length=300)
    cache: str = Field(default="", max_length=5000)
    is_writable: bool = False
    free_mb: int = Field(default=0, ge=0)

    @classmethod
    def of(cls, said: object) -> Answer:
        """What a worker said to ``examine``: JSON, or the error that came instead."""
        if said is None:
            return cls(problem="it has not answered")
        if isinstance(said, BaseException):
            return cls(problem=f"it cannot answer: {' '.join(str(said).split())[:300] or type(said).__name__}")
        try:
            return cls.model_validate_json(str(said))
        except ValidationError:
            return cls(problem="it says what is no answer: its program is of another version")


@lru_cache(maxsize=1)
def _code() -> str:
    package = Path(__file__).resolve().parents[1]
    total = hashlib.sha256()
    for file in sorted(package.rglob("*")):
        if file.is_file() and file.suffix not in _NO_CODE:
            total.update(f"{file.relative_to(package)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()[:16]


# A worker of a fleet: Dask's worker that does boots, and what the client asks it to do.

_PLUGIN = "lab-boots"
_UNDER_WAY = ("executing", "long-running")


class BootPlugin(WorkerPlugin):
    """The boots of a worker, ended when Dask forgets their tasks: a cancelled future stops no thread by itself."""

    name = _PLUGIN

    def __init__(self, name: str, guests: int, memory_mib: int) -> None:
        self._given = (name, guests, memory_mib)

    def setup(self, worker: Worker) -> None:
        self.boots = Boots(cache_dir())

    def offer(self) -> Offer:
        name, guests, memory = self._given
        return Offer(name=name, versions=Versions.here(), guests=guests, memory_mib=memory)

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        if start in _UNDER_WAY and finish not in ("memory", "error"):
            self.boots.abort(str(key))

    def teardown(self, worker: Worker) -> None:
        self.boots.abort_all()


class FleetWorker(Unlisted, Worker):
    """Dask's worker without its HTTP server. It ends its guests first, not after the half minute that Dask waits."""

    async def close(self, *args: Any, **kwargs: Any) -> Any:
        plugin = self.plugins.get(_PLUGIN)
        if plugin is not None and hasattr(plugin, "boots"):
            plugin.boots.abort_all()
        return await super().close(*args, **kwargs)


def _plugin(worker: Worker) -> BootPlugin:
    plugin = worker.plugins[_PLUGIN]
    assert isinstance(plugin, BootPlugin)
    return plugin


def do_boot(attempt: str, topic: str, data: bytes) -> dict[str, object]:
    """On a worker, as a task: do a boot, which is sent by its messages on a topic; how it ended."""
    worker = get_worker()
    return _plugin(worker).boots.do(attempt, data, lambda message: worker.log_event(topic, message))


async def examine(dask_worker: Worker) -> str:
    """On a worker: what it says of itself, as JSON."""
    return (await asyncio.to_thread(_examined, _plugin(dask_worker))).model_dump_json()


def _examined(plugin: BootPlugin) -> Answer:
    cache = cache_dir()
    existing = next(folder for folder in (cache, *cache.parents) if os.access(folder, os.F_OK))
    facts: dict[str, Any] = {
        "host": socket.gethostname(),
        "cache": str(cache),
        "is_writable": os.access(existing, os.W_OK | os.X_OK),
        "free_mb": shutil.disk_usage(existing).free // 1_000_000,
    }
    try:
        return Answer(offer=plugin.offer(), **facts)
    except LabError as error:
        return Answer(problem=error.what, **facts)


async def missing(wanted: Sequence[Reference], dask_worker: Worker) -> list[Reference]:
    """On a worker: those of the references whose files have to be sent."""
    return await asyncio.to_thread(_plugin(dask_worker).boots.warehouse.missing, wanted)


async def receive(reference: Reference, offset: int, piece: bytes, sender: str, dask_worker: Worker) -> str:
    """On a worker: take a piece of a file; empty, or what its host lacks. Raises LabError for what is no such piece."""
    try:
        await asyncio.to_thread(_plugin(dask_worker).boots.warehouse.receive, reference, offset, piece, sender)
    except HostError as error:
        return error.what
    return ""
