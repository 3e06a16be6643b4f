# SPDX-License-Identifier: GPL-2.0-only
"""The crew of a run: who does its boots, and the events that report them; the crew of this machine.

A crew touches neither store nor provenance nor progress display: the run that reads its events is the only writer.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Protocol

from orchestrator.artifacts.cache import BuildContext
from orchestrator.errors import UsageError
from orchestrator.guest.guest import Guest
from orchestrator.run.boot import BootArtifacts, BootTask, Event, Session, run_boot
from orchestrator.run.guests import unwatched
from orchestrator.steps import step, step_source


@dataclass(frozen=True)
class Job:
    """A boot for a crew to do, and what was prepared for it here.

    ``timed_on`` is the worker that has measured times of the run before, empty for this machine; None where nothing was
    measured by the wall clock yet, or nothing of the boot's is to be.
    """

    task: BootTask
    artifacts: BootArtifacts
    timed_on: str | None = None

    @property
    def name(self) -> str:
        """The boot's name in its run, which is that of its folder: ``boot3``."""
        return self.task.directory.name


@dataclass(frozen=True)
class JobEnded:
    """A boot has come to its end: what it leaves is in its directory, and no event of it follows."""


CrewEvent = Event | JobEnded


class Crew(Protocol):
    """Does jobs, several at a time, in the order in which they were submitted where that is possible."""

    @property
    def jobs(self) -> int:
        """How many boots it can do side by side."""

    def submit(self, job: Job) -> None:
        """Take on a job; it begins when its events are asked for."""

    def events(self) -> Generator[tuple[Job, CrewEvent], None, None]:
        """What the jobs report, until all have ended. Closing it ends them at once, and so does what it raises.

        Signals that interrupt the process are raised here. Raises the first error that ends a run: HostError,
        UsageError and the like.
        """


# Signals that wait for their turn among a crew's events.
#
# One that raised wherever the thread happens to be could lose an event, or leave a lock held that a boot needs: then
# nothing would ever end.

_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_in_turn(put: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Hand what a signal would do to ``put``, for as long as the context lasts; what is put then raises."""
    if threading.current_thread() is not threading.main_thread():
        yield  # no signal raises here
        return
    handlers = {number: signal.getsignal(number) for number in _INTERRUPTIONS}
    raising = {number: handler for number, handler in handlers.items() if callable(handler)}

    def defer(number: int, frame: FrameType | None) -> None:
        put(partial(raising[signal.Signals(number)], number, frame))

    for number in raising:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)


# The crew on this machine: a thread for each boot, at most ``jobs`` of them at a time.
#
# A boot hands over one event at a time and waits until the reader asks for the next one. An outcome is stored before
# that boot's next cell begins, or as soon as the cells of other boots that it is compared with have theirs.


class Stopped(BaseException):
    """The run ends: raised in a boot that reports something. Not an error, and not to be caught as one."""


class _Reported:
    """An event on its way: ``taken`` when the reader has done with it."""

    def __init__(self, job: Job, event: CrewEvent) -> None:
        self.job, self.event = job, event
        self.taken: Future[None] = Future()


class LocalCrew:
    """Does boots in threads of this process. ``watch`` gets each guest, in its boot's thread, before it runs."""

    def __init__(self, context: BuildContext, jobs: int, watch: Callable[[Guest], None] = unwatched) -> None:
        self.jobs = jobs
        self._context, self._watched = context, watch
        self._submitted: list[Job] = []
        self._queue: queue.SimpleQueue[_Reported | Future[None] | Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._guests: list[Guest] = []
        self._stopped = False

    def submit(self, job: Job) -> None:
        if job.timed_on:
            raise UsageError(
                f"times of this run were measured on worker {job.timed_on}, and this machine's do not go with them",
                hint="go on with it on the same fleet: --fleet",
            )
        self._submitted.append(job)

    def events(self) -> Generator[tuple[Job, CrewEvent], None, None]:
        with signals_in_turn(self._queue.put), ThreadPoolExecutor(self.jobs, thread_name_prefix="boot") as pool:
            futures: list[Future[None]] = []
            try:
                for job in self._submitted:
                    future = pool.submit(self._do, job)
                    future.add_done_callback(self._queue.put)
                    futures.append(future)
                yield from self._reported(len(futures))
            finally:
                self._stop(futures)

    def _do(self, job: Job) -> None:
        with step_source(job.name), step(f"boot {job.task.boot.kernel} on {job.task.boot.cpu}"):
            run_boot(Session(job.task, job.artifacts, self._context, partial(self._report, job), self._watch))
        self._report(job, JobEnded())

    def _report(self, job: Job, event: Event | JobEnded) -> None:
        """In a boot's thread: go on when the event was taken. Raises Stopped when none will be any more."""
        reported = _Reported(job, event)
        self._queue.put(reported)
        reported.taken.result()

    def _watch(self, guest: Guest) -> None:
        """In a boot's thread: a guest that is to end with the crew, whatever its thread is waiting for."""
        with self._lock:
            self._guests.append(guest)
        if self._stopped:
            raise Stopped
        self._watched(guest)

    def _reported(self, jobs: int) -> Generator[tuple[Job, CrewEvent], None, None]:
        """All events until this number of threads has ended. Raises the first error of one, and interruptions."""
        ended = 0
        while ended < jobs:
            match self._queue.get():
                case _Reported() as reported:
                    try:
                        yield reported.job, reported.event
                    except BaseException:  # closed by its reader
                        reported.taken.set_exception(Stopped())
                        raise
                    reported.taken.set_result(None)
                case Future() as future:
                    ended += 1
                    future.result()
                case interrupt:
                    interrupt()

    def _stop(self, futures: list[Future[None]]) -> None:
        with self._lock:
            self._stopped = True
            guests = list(self._guests)
        for future in futures:
            future.cancel()
        for guest in guests:
            guest.abort()
        # A boot that reports something gets Stopped, and ends when its guest has.
        while not all(future.done() for future in futures):
            with suppress(queue.Empty):
                left = self._queue.get(timeout=0.1)
                if isinstance(left, _Reported):
                    left.taken.set_exception(Stopped())
