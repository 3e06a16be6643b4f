# SPDX-License-Identifier: GPL-2.0-only
"""The client's connection to a fleet: its Dask client, its queue of messages, and questions to all workers.

Nothing here decides anything: see ``crew``.
"""

from __future__ import annotations

import io
import queue
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed import Client, Future

from orchestrator.errors import HostError, LabError
from orchestrator.fleet import worker as on_worker
from orchestrator.fleet.parcel import PIECE, Parcel, Reference
from orchestrator.fleet.target import MEMBERS, RUN_TOPIC, Target, no_fleet, security_of, set_up_dask, silence_dask
from orchestrator.fleet.worker import Answer

# A client of Dask's, connected to a fleet's scheduler.

_CONNECT_LIMIT = 15
"""Seconds until a scheduler that does not answer is told as such."""


def connected(address: str, key: str) -> Client:
    """A client of the scheduler at an address: ``tls://127.0.0.1:8786``. Raises HostError where none answers."""
    set_up_dask()
    try:
        return Client(
            address,
            security=security_of(key),
            timeout=_CONNECT_LIMIT,
            set_as_default=False,
            direct_to_workers=False,
            heartbeat_interval=2000,
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise no_fleet(address, short(error)) from None


def short(error: BaseException) -> str:
    """The first line of an error: what Dask says of its own objects comes behind it."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


# The client's connection to a fleet: what it asks workers for, and what it hears, as items of one queue.

_SHIPPERS = 8
"""Workers to which files are sent at once."""

_PING_INTERVAL = 5.0
_SILENCE_LIMIT = 60.0
"""Seconds without an answer from the scheduler, behind which the connection is taken for lost."""


@dataclass(frozen=True)
class Joined:
    """A worker has come."""

    address: str


@dataclass(frozen=True)
class Left:
    """A worker has gone."""

    address: str


@dataclass(frozen=True)
class Offered:
    """A worker says what it is."""

    address: str
    answer: Answer


@dataclass(frozen=True)
class Told:
    """A message of some boot."""

    message: object


@dataclass(frozen=True)
class Ended:
    """An attempt's task has ended: with what it returned, or with what went wrong with it."""

    attempt: str
    result: object = None
    error: str | None = None


Heard = Joined | Left | Offered | Told | Ended


class Link:
    """A connection to a fleet's scheduler. ``heard`` has what comes; other items may be put into it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topic = f"{RUN_TOPIC}{secrets.token_hex(8)}"
        self.heard: queue.SimpleQueue[Heard | Callable[[], None]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(_SHIPPERS, thread_name_prefix="fleet")
        self._futures: dict[str, Future[Any]] = {}
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        """Boots whose files are on the way, and that were not cancelled meanwhile."""
        self._shipping: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._has: defaultdict[str, set[Reference]] = defaultdict(set)
        self._closing = threading.Event()
        self._silent = threading.Event()
        client.subscribe_topic(self._topic, lambda event: self.heard.put(Told(event[1])))
        # It begins with those that are there: asked for in another way, one that comes or goes meanwhile is missed.
        client.subscribe_topic(MEMBERS, self._member)
        self._watch = threading.Thread(target=self._listen_for_life, name="fleet-ping", daemon=True)
        self._watch.start()

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler is gone, or has not answered for a minute."""
        return self._client.status != "running" or self._silent.is_set()

    def ask_offer(self, address: str) -> None:
        """Have a worker say what it is; ``heard`` gets Offered."""

        def ask() -> None:
            try:
                said: object = self._on(address, on_worker.examine)
            except Exception as error:  # whatever Dask makes of a worker's end
                said = error
            self.heard.put(Offered(address, Answer.of(said)))

        self._pool.submit(ask)

    def start(self, attempt: str, address: str, parcel: Parcel) -> None:
        """Send what a worker lacks and have it do a boot; ``heard`` gets Told for its messages, and Ended."""
        with self._lock:
            self._wanted.add(attempt)
        self._pool.submit(self._start, attempt, address, parcel)

    def cancel(self, attempt: str) -> None:
        """End a boot that is under way, or do not begin it where its files are still being sent."""
        with self._lock:
            self._wanted.discard(attempt)
            future = self._futures.pop(attempt, None)
        if future is not None:
            self._client.cancel([future], asynchronous=False, force=True)

    def do(self, work: Callable[[], None]) -> None:
        """Let a thread do something that takes a while."""
        self._pool.submit(work)

    def close(self) -> None:
        """End all boots of ours, and the connection."""
        self._closing.set()
        for attempt in list(self._futures):
            with suppress(Exception):  # of a connection that is lost: the scheduler ends them, too
                self.cancel(attempt)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _member(self, event: tuple[float, Any]) -> None:
        match event[1]:
            case {"action": "joined", "address": str(address)}:
                self.heard.put(Joined(address[:200]))
            case {"action": "left", "address": str(address)}:
                self._has.pop(address[:200], None)
                self.heard.put(Left(address[:200]))

    def _start(self, attempt: str, address: str, parcel: Parcel) -> None:
        try:
            with self._shipping[address]:
                self._ship(address, parcel)
            with self._lock:
                if attempt in self._wanted:
                    self._submit(attempt, address, parcel.data)
        except HostError as error:  # the worker's own: its disk is full
            self.heard.put(Ended(attempt, result={"end": "host", "messages": 0, "what": error.what}))
        except BaseException as error:  # whatever Dask makes of a worker's end, and a file of ours that cannot be read
            self.heard.put(Ended(attempt, error=f"its files could not be sent: {short(error)}"))
        finally:
            with self._lock:
                self._wanted.discard(attempt)

    def _submit(self, attempt: str, address: str, data: bytes) -> None:
        def done(future: Future[Any]) -> None:
            try:
                ended = Ended(attempt, future.result())
            except BaseException as error:  # whatever Dask makes of a worker's end
                ended = Ended(attempt, error=short(error))
            self.heard.put(ended)
            # Its result is kept by nobody.
            if self._futures.pop(attempt, None) is not None:
                with suppress(Exception):
                    future.release()

        future = self._client.submit(
            on_worker.do_boot,
            attempt,
            self._topic,
            data,
            key=attempt,
            workers=[address],
            allow_other_workers=False,
            pure=False,
            retries=0,
        )
        self._futures[attempt] = future
        future.add_done_callback(done)

    def _ship(self, address: str, parcel: Parcel) -> None:
        wanted = [reference for reference in parcel.files if reference not in self._has[address]]
        if wanted:
            for reference in self._on(address, on_worker.missing, wanted):
                self._send(address, reference, parcel.files[reference])
            self._has[address] |= set(wanted)

    def _send(self, address: str, reference: Reference, file: Path | bytes) -> None:
        with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as opened:
            offset = 0
            while True:
                piece = opened.read(PIECE)
                refused = self._on(address, on_worker.receive, reference, offset, piece, self._topic)
                if refused:
                    raise HostError(str(refused))
                offset += len(piece)
                if offset >= reference.size:
                    return
                if not piece:
                    raise LabError(f"{file!s:.200} has changed while it was sent")

    def _on(self, address: str, function: Callable[..., Any], *arguments: object) -> Any:
        """What an asynchronous function returns on a worker."""
        return self._client.run(function, *arguments, workers=[address], on_error="raise")[address]

    def _listen_for_life(self) -> None:
        while not self._closing.wait(_PING_INTERVAL):
            try:
                self._client.sync(self._ask_identity, callback_timeout=_SILENCE_LIMIT)
            except Exception:  # a closed connection, or no answer in time
                self._silent.set()
                return

    async def _ask_identity(self) -> object:
        scheduler: Any = self._client.scheduler
        return await scheduler.identity(n_workers=0)


@contextmanager
def linked(address: str, key: str) -> Iterator[Link]:
    """A link to the scheduler at an address, until the context ends. Raises HostError where none answers."""
    client = connected(address, key)
    link = Link(client)
    try:
        yield link
    finally:
        link.close()
        with suppress(Exception):  # nothing is left to be told
            client.close(timeout=5)


# What do all workers of a fleet say of themselves? Versions, room, cache, and guests under way.

_BOOTS = ("boot", "calibration-")
"""What the names of tasks begin with that take a guest's place."""


@dataclass(frozen=True)
class Surveyed:
    """A worker as the scheduler knows it, and what it answered."""

    address: str
    name: str
    running: int
    """Guests under way."""
    answer: Answer


def survey(fleet: Target) -> list[Surveyed]:
    """Ask every worker, by their names. Raises HostError where the scheduler does not answer."""
    silence_dask()
    with connected(fleet.address, fleet.key) as client:
        known = client.scheduler_info(n_workers=-1)["workers"]
        at = client.processing()
        answers: Mapping[str, Any] = client.run(on_worker.examine, on_error="return") if known else {}
    found = [
        Surveyed(address, str(facts.get("name"))[:100], _boots(at.get(address, ())), Answer.of(answers.get(address)))
        for address, facts in known.items()
    ]
    return sorted(found, key=lambda one: (one.name, one.address))


def _boots(tasks: object) -> int:
    return sum(str(task).startswith(_BOOTS) for task in tasks) if isinstance(tasks, list | tuple | set) else 0
