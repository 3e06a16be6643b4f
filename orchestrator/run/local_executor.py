# SPDX-License-Identifier: GPL-2.0-only
"""The executor on this machine: a thread per boot, at most ``jobs`` at a time.

A boot hands over one event at a time and waits until the reader asks for the next one. So an outcome is stored before
that boot's next cell begins, or as soon as the cells of other boots that it is compared with have theirs.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.errors import UsageError
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_group import Guests, Stopped
from orchestrator.run.benchmark_kind import Session
from orchestrator.run.boot import run_boot
from orchestrator.run.executor import ExecutorEvent, Job, JobEnded, signals_in_turn
from orchestrator.run.guest_start import unwatched
from orchestrator.steps import step, step_source

_Reported = tuple[Job, ExecutorEvent, Future[None]]
"""An event in transit; the future is set when the reader is done with it."""


class LocalExecutor:
    """Does boots in threads of this process. ``watch`` gets each guest, in its boot's thread, before it runs."""

    def __init__(self, context: BuildContext, jobs: int, watch: Callable[[Guest], None] = unwatched) -> None:
        self.jobs = jobs
        self._context, self._watched = context, watch
        self._submitted: list[Job] = []
        self._queue: queue.SimpleQueue[_Reported | Future[None] | Callable[[], None]] = queue.SimpleQueue()
        self._guests = Guests()

    def submit(self, job: Job) -> None:
        if job.timed_on:
            raise UsageError(
                f"times of this run were measured on worker {job.timed_on}, and cannot be mixed with this machine's",
                hint="resume it on the same fleet: --fleet",
            )
        self._submitted.append(job)

    def events(self) -> Generator[tuple[Job, ExecutorEvent], None, None]:
        with signals_in_turn(self._queue.put), ThreadPoolExecutor(self.jobs, thread_name_prefix="boot") as pool:
            futures: list[Future[None]] = []
            try:
                for job in self._submitted:
                    future = pool.submit(self._do, job)
                    future.add_done_callback(self._queue.put)
                    futures.append(future)
                yield from self._reported(len(futures))
            finally:
                for future in futures:
                    future.cancel()
                self._guests.end()
                # A boot that reports something gets Stopped, and ends when its guest has.
                while not all(future.done() for future in futures):
                    with suppress(queue.Empty):
                        left = self._queue.get(timeout=0.1)
                        if isinstance(left, tuple):
                            left[2].set_exception(Stopped())

    def _do(self, job: Job) -> None:
        with step_source(job.name), step(f"boot {job.task.boot.guest.kernel} on {job.task.boot.guest.cpu}"):
            run_boot(Session(job.task, job.artifacts, self._context, partial(self._report, job), self._watch))
        self._report(job, JobEnded())

    def _report(self, job: Job, event: ExecutorEvent) -> None:
        """In a boot's thread: hand over an event and wait until it was taken. Raises Stopped if the run ends."""
        taken: Future[None] = Future()
        self._queue.put((job, event, taken))
        taken.result()

    def _watch(self, guest: Guest) -> None:
        self._guests.watch(guest)
        self._watched(guest)

    def _reported(self, jobs: int) -> Generator[tuple[Job, ExecutorEvent], None, None]:
        """All events until ``jobs`` threads have ended. Raises their first error, and interruptions."""
        ended = 0
        while ended < jobs:
            match self._queue.get():
                case (job, event, taken):
                    try:
                        yield job, event
                    except BaseException:  # including its reader's close()
                        taken.set_exception(Stopped())
                        raise
                    taken.set_result(None)
                case Future() as future:
                    ended += 1
                    future.result()
                case interrupt:
                    interrupt()
