# SPDX-License-Identifier: GPL-2.0-only
"""The client's connection to a fleet: its Dask client, its message queue, and requests to all workers.

Decisions are made in ``executor``.
"""

from __future__ import annotations

import queue
import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from distributed import Client, Future, KilledWorker

from orchestrator.errors import HostError, LabError
from orchestrator.fleet import worker as on_worker
from orchestrator.fleet.file_store import PIECE
from orchestrator.fleet.key import security_of
from orchestrator.fleet.target import RUN_TOPIC, Target, no_fleet, quiet_logging, set_up_dask
from orchestrator.fleet.transfer import Bundle
from orchestrator.fleet.worker import Answer


def connected(address: str, key: str) -> Client:
    """A client of the scheduler at an address: ``tls://127.0.0.1:8786``. Raises HostError if none answers."""
    set_up_dask()
    try:
        return Client(
            address,
            security=security_of(key),
            timeout=15,
            set_as_default=False,
            direct_to_workers=False,
            heartbeat_interval=2000,
        )
    except (OSError, TimeoutError, ValueError) as error:
        raise no_fleet(address, short(error)) from None


def short(error: BaseException) -> str:
    """The first line of an error; Dask appends descriptions of its own objects."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


_SILENCE_LIMIT = 60.0
"""Seconds without an answer from the scheduler until the connection counts as lost."""


@dataclass(frozen=True)
class Joined:
    """A worker has joined."""

    address: str


@dataclass(frozen=True)
class Left:
    """A worker has left."""

    address: str


@dataclass(frozen=True)
class Message:
    """A message of a boot."""

    message: object


@dataclass(frozen=True)
class Ended:
    """An attempt's task has ended: normally, or with an error on the worker or on the way to it."""

    attempt: str
    error: BaseException | None = None


Notice = Joined | Left | Message | Ended
T = TypeVar("T")


class Link:
    """A connection to a fleet's scheduler. ``inbox`` receives messages; other items may be put into it."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topic = f"{RUN_TOPIC}{secrets.token_hex(8)}"
        self.inbox: queue.SimpleQueue[Notice | Callable[[], object]] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="fleet")  # workers that receive files in parallel
        self._futures: dict[str, Future[Any] | None] = {}
        """The boots that were not cancelled; None while their files are being sent."""
        self._lock = threading.Lock()
        self._shipping: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._closing = threading.Event()
        self._silent = threading.Event()
        client.subscribe_topic(self._topic, lambda event: self.inbox.put(Message(event[1])))
        threading.Thread(target=self._follow_members, name="fleet-members", daemon=True).start()

    @property
    def is_lost(self) -> bool:
        """Whether the scheduler is gone, or has not answered for a minute."""
        return self._client.status != "running" or self._silent.is_set()

    def examined(self, address: str) -> Answer:
        try:
            return Answer.of(self._on(address, on_worker.examine))
        except Exception as error:  # any error of Dask's at a worker's end
            return Answer.of(error)

    def start(self, attempt: str, address: str, bundle: Bundle) -> None:
        """Send the files that a worker lacks, and start a boot; ``inbox`` gets Message for its messages, and Ended."""
        self._futures[attempt] = None
        self._pool.submit(self._start, attempt, address, bundle)

    def cancel(self, attempt: str) -> None:
        """End a running boot, or prevent one whose files are still being sent."""
        with self._lock:
            future = self._futures.pop(attempt, None)
        if future is not None:
            self._client.cancel([future], asynchronous=False, force=True)

    def do(self, work: Callable[[], T], then: Callable[[T], object]) -> None:
        """Run ``work`` in a thread; ``inbox`` gets a call of ``then`` with its result."""
        self._pool.submit(work).add_done_callback(lambda done: self.inbox.put(lambda: then(done.result())))

    def close(self) -> None:
        self._closing.set()
        for attempt in list(self._futures):
            with suppress(Exception):  # the connection is lost: the scheduler ends them
                self.cancel(attempt)
        self._pool.shutdown(wait=False, cancel_futures=True)
        with suppress(Exception):  # no messages are left
            self._client.close(timeout=5)

    def _start(self, attempt: str, address: str, bundle: Bundle) -> None:
        try:
            with self._shipping[address]:
                self._ship(address, bundle)
            with self._lock:
                if attempt in self._futures:
                    self._submit(attempt, address, bundle.data)
        except HostError as error:  # from the worker, for example a full disk
            self.inbox.put(Ended(attempt, error))
        except BaseException as error:  # any error of Dask's at a worker's end, or an unreadable local file
            self.inbox.put(Ended(attempt, LabError(f"its files could not be sent: {short(error)}")))

    def _submit(self, attempt: str, address: str, data: bytes) -> None:
        def done(future: Future[Any]) -> None:
            try:
                error = future.exception()
            except BaseException as failure:  # the connection is lost
                error = failure
            self.inbox.put(Left(address) if isinstance(error, KilledWorker) else Ended(attempt, error))
            if self._futures.pop(attempt, None) is not None:
                with suppress(Exception):
                    future.release()

        future = self._client.submit(
            on_worker.do_boot, attempt, self._topic, data, key=attempt, workers=[address], pure=False
        )
        self._futures[attempt] = future
        future.add_done_callback(done)

    def _ship(self, address: str, bundle: Bundle) -> None:
        for reference in self._on(address, on_worker.missing, list(bundle.files)):
            with bundle.files[reference].open("rb") as file:
                for offset in range(0, max(1, reference.size), PIECE):
                    self._on(address, on_worker.receive, reference, offset, file.read(PIECE), self._topic)

    def _on(self, address: str, function: Callable[..., Any], *arguments: object) -> Any:
        return self._client.run(function, *arguments, workers=[address], on_error="raise")[address]

    def _follow_members(self) -> None:
        """In a thread of its own: report joins and leaves, until the scheduler stops answering."""
        known: set[str] = set()
        scheduler: Any = self._client.scheduler
        while True:
            try:
                there = set(self._client.sync(scheduler.ncores, callback_timeout=_SILENCE_LIMIT))
            except Exception:  # the connection was closed, or no answer in time
                self._silent.set()
                return
            for address in known - there:
                self.inbox.put(Left(address))
            for address in there - known:
                self.inbox.put(Joined(address))
            known = there
            if self._closing.wait(0.5):
                return


@dataclass(frozen=True)
class Surveyed:
    """A worker in the scheduler's view, and its answer."""

    address: str
    name: str
    running: int
    """Running guests."""
    answer: Answer


def survey(fleet: Target) -> list[Surveyed]:
    """Ask every worker, in order of names. Raises HostError if the scheduler does not answer."""
    quiet_logging()
    with connected(fleet.address, fleet.key) as client:
        known = client.scheduler_info(n_workers=-1)["workers"]
        at = client.processing()
        answers: Mapping[str, Any] = client.run(on_worker.examine, on_error="return") if known else {}
    surveyeds = [
        Surveyed(
            address,
            str(facts.get("name"))[:100],
            sum(str(task).startswith(("boot", "calibration-")) for task in at.get(address, ())),  # these occupy a guest
            Answer.of(answers.get(address)),
        )
        for address, facts in known.items()
    ]
    return sorted(surveyeds, key=lambda surveyed: (surveyed.name, surveyed.address))
