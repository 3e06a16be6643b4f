# SPDX-License-Identifier: GPL-2.0-only
"""Work that takes long, one piece at a time, for a program that answers others meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue

from orchestrator.errors import UsageError


class Measurements:
    """Calls that are done in the thread that serves: in the main one a signal ends them, and their guests."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._wanted: SimpleQueue[tuple[Future[str], Callable[[], str]] | None] = SimpleQueue()

    def begin(self, call: Callable[[], str]) -> Future[str]:
        """Do a call. Raises UsageError while another is being done."""
        if not self._busy.acquire(blocking=False):
            raise UsageError("a measurement is running", hint="ask again when its call is answered")
        future: Future[str] = Future()
        self._wanted.put((future, call))
        return future

    def serve(self) -> None:
        """Do calls until the end. That nobody waits for a call any more does not stop it."""
        for future, call in iter(self._wanted.get, None):
            answer: str | Exception = ""
            try:
                if future.set_running_or_notify_cancel():
                    answer = call()
            except Exception as error:
                answer = error
            self._busy.release()  # before the answer, after which the next may begin
            if isinstance(answer, Exception):
                future.set_exception(answer)
            elif not future.cancelled():
                future.set_result(answer)

    def end(self) -> None:
        """Let ``serve`` return once it has done what was begun."""
        self._wanted.put(None)
