# SPDX-License-Identifier: GPL-2.0-only
"""Coordinator thread: owns the store, provenance and progress display, and stops all boots on the first error.

Boots run in threads of their own. Each hands the coordinator one piece of work at a time and waits until it is done. An
outcome is stored before that boot's next cell begins, or as soon as the cells of other boots that it is compared with
have theirs.
"""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType
from typing import Any, TypeVar

from orchestrator.guest.guest import Guest

T = TypeVar("T")

_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """The run ends: raised in a worker that asks for something. Not an error, and not to be caught as one."""


class Coordinator:
    """Serves workers, at most ``jobs`` at a time."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._guests: list[Guest] = []
        self._stopped = False

    def do(self, work: Callable[[], T]) -> T:
        """From a boot's thread: have the coordinator do ``work``. Returns or raises what it does, or raises Stopped."""
        answer: Future[T] = Future()

        def serve() -> None:
            if self._stopped:
                answer.set_exception(Stopped())
                return
            try:
                answer.set_result(work())
            except Exception as error:  # the worker's to handle
                answer.set_exception(error)
            except BaseException:
                answer.set_exception(Stopped())
                raise

        self._work.put(serve)
        return answer.result()

    def watch(self, guest: Guest) -> None:
        """From a worker: a guest that is to end with the run, whatever its worker is waiting for."""
        with self._lock:
            self._guests.append(guest)
        if self._stopped:
            raise Stopped

    def serve(self, workers: Sequence[Callable[[], None]]) -> None:
        """Run all workers to their ends. The first error of one, or an interruption here, ends all and is raised."""
        with self._signals_as_work(), ThreadPoolExecutor(self._jobs, thread_name_prefix="boot") as pool:
            futures: list[Future[None]] = []
            try:
                for worker in workers:
                    future = pool.submit(worker)
                    future.add_done_callback(self._noticed)
                    futures.append(future)
                self._serve_until_done(futures)
            finally:
                self._stop(futures)

    @contextmanager
    def _signals_as_work(self) -> Iterator[None]:
        """Let a signal wait for its turn at the coordinator.

        One that raised wherever this thread happens to be could lose a piece of work, or leave a lock held that a
        worker needs: then nothing would ever end.
        """
        handlers = {number: signal.getsignal(number) for number in _INTERRUPTIONS}
        raising = {number: handler for number, handler in handlers.items() if callable(handler)}

        def defer(number: int, frame: FrameType | None) -> None:
            self._work.put(partial(raising[signal.Signals(number)], number, frame))

        for number in raising:
            signal.signal(number, defer)
        try:
            yield
        finally:
            for number, handler in raising.items():
                signal.signal(number, handler)

    def _noticed(self, future: Future[None]) -> None:
        del future
        self._work.put(None)

    def _serve_until_done(self, futures: Sequence[Future[None]]) -> None:
        ended = 0
        while ended < len(futures):
            work = self._work.get()
            if work is not None:
                work()
                continue
            ended += 1
            for future in futures:
                if future.done():
                    future.result()

    def _stop(self, futures: Sequence[Future[Any]]) -> None:
        with self._lock:
            self._stopped = True
            guests = list(self._guests)
        for future in futures:
            future.cancel()
        for guest in guests:
            guest.abort()
        # A worker that asks for something gets Stopped, and ends when its guest has.
        while not all(future.done() for future in futures):
            try:
                work = self._work.get(timeout=0.1)
            except queue.Empty:
                continue
            if work is not None:
                with suppress(KeyboardInterrupt):  # it is ending already
                    work()
