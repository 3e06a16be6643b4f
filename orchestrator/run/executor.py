# SPDX-License-Identifier: GPL-2.0-only
"""The executor of a run's boots, and the events that report them.

An executor uses neither store nor provenance nor progress display: the run that reads its events is the only writer.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Protocol

from orchestrator.run.benchmark_kind import BootArtifacts, BootTask
from orchestrator.run.boot_events import Event


@dataclass(frozen=True)
class Job:
    """A boot for an executor, and what was prepared for it here.

    ``timed_on`` is the worker that measured the run's earlier wall-clock times, empty for this machine; None if there
    are none yet, or the boot measures none.
    """

    task: BootTask
    artifacts: BootArtifacts
    timed_on: str | None = None

    @property
    def name(self) -> str:
        """The boot's name in its run, also its folder's: ``boot3``."""
        return self.task.directory.name


@dataclass(frozen=True)
class JobEnded:
    """A boot has ended: its files are in its directory, and no more of its events follow."""


ExecutorEvent = Event | JobEnded


class Executor(Protocol):
    """Does jobs, several at a time, in order of submission if possible."""

    @property
    def jobs(self) -> int:
        """The number of boots that it can do in parallel."""

    def submit(self, job: Job) -> None:
        """Accept a job; it begins when events are requested."""

    def events(self) -> Generator[tuple[Job, ExecutorEvent], None, None]:
        """What the jobs report, until all have ended. Closing the generator, or an error from it, ends them at once.

        Signals that interrupt the process are raised here. Raises the first error that ends a run: HostError,
        UsageError and the like.
        """


# Signals are queued among an executor's events.
#
# Raised at an arbitrary place, a signal could lose an event, or leave a lock held that a boot needs: then nothing would
# ever end.

_INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def signals_in_turn(put: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """While the context lasts, pass each signal's effect to ``put`` as a function that raises."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals raise in the main thread only
        return
    raising = {number: handler for number in _INTERRUPTIONS if callable(handler := signal.getsignal(number))}

    def defer(number: int, frame: FrameType | None) -> None:
        put(partial(raising[signal.Signals(number)], number, frame))

    for number in raising:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)
