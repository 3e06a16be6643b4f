# SPDX-License-Identifier: GPL-2.0-only
"""An idle guest's rest: QEMU is stopped while the guest has no work."""

from __future__ import annotations

import contextlib
import threading
import time

from orchestrator.errors import GuestError
from orchestrator.guest.interruption import is_stopped
from orchestrator.guest.monitor import Monitor

_IDLE = 0.02
"""Seconds without a request, after which a guest is stopped. To stop and continue it takes a millisecond."""


class Rest:
    """A thread that stops a guest's CPUs while nothing is asked of it; for the guest no time passes.

    Nothing is sent to a QEMU that is stopped itself: it would not answer within the request's limit.
    """

    def __init__(self, monitor: Monitor, process: int) -> None:
        self._monitor, self._process = monitor, process
        self._lock = threading.Lock()
        self._held, self._since = 0, time.monotonic()
        self._is_stopped = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="QEMU's rest", daemon=True)
        self._thread.start()

    def hold(self) -> None:
        """Let the guest run until ``release``, as often as it is held."""
        with self._lock:
            self._held += 1
            if self._is_stopped and not is_stopped(self._process):
                with contextlib.suppress(GuestError):  # QEMU has ended, which the next request finds out
                    self._monitor.command("cont")
                    self._is_stopped = False

    def release(self) -> None:
        with self._lock:
            self._held -= 1
            self._since = time.monotonic()

    def end(self) -> None:
        """Leave the guest as it is from now on."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_IDLE):
            with self._lock:
                if self._held or self._is_stopped or time.monotonic() < self._since + _IDLE:
                    continue
                with contextlib.suppress(GuestError):  # QEMU has ended or is being ended
                    if not is_stopped(self._process) and self._monitor.status() == "running":
                        self._is_stopped = True  # first: QEMU may do it, and answer too late
                        self._monitor.command("stop")
