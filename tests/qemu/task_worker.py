# SPDX-License-Identifier: GPL-2.0-only
"""How is a boot's task done in another process, which has nothing of this one but the task?"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.run.benchmark_kind import BootTask, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import Event
from orchestrator.run.boot_preparation import prepare


def do_task(task: BootTask, context: BuildContext, emit: Callable[[Event], None]) -> None:
    """Do it in this process, with the artifacts of its cache."""
    run_boot(Session(task, prepare(context, task.kind, task.boot), context, emit))


class Worker:
    """Another process that does a task."""

    def __init__(self, task: BootTask, context: BuildContext) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._receiver, sender = self._context.Pipe(duplex=False)
        self._process = self._context.Process(target=_work, args=(task, context, sender))
        self._process.start()
        sender.close()
        self.loaded: frozenset[str] = frozenset()
        """The modules that the other process had loaded at its end."""

    def events(self) -> Iterator[Event]:
        """The task's events as they come. Fails unless the process ends well."""
        try:
            while True:
                received = self._receiver.recv()
                if isinstance(received, frozenset):
                    self.loaded = received
                else:
                    yield received
        except EOFError:
            self._process.join()
            assert self._process.exitcode == 0
        finally:
            self._process.kill()
            self._process.join()
            self._receiver.close()


def _work(task: BootTask, context: BuildContext, sender: Connection) -> None:
    with sender:
        do_task(task, context, sender.send)
        sender.send(frozenset(sys.modules))
