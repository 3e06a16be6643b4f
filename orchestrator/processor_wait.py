# SPDX-License-Identifier: GPL-2.0-only
"""How long this process, and those that it started, have waited for a processor."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections.abc import Mapping

_READ_MAX = 1 << 16
"""Bytes; the kernel gives whole lines and numbers, a page of them at once: the numbers of some 600 children."""


def processor_waits() -> dict[int, float]:
    """Seconds that each thread of ours and of all our descendants was ready to run and got no processor, by number.

    They are of the thread's whole life, as the kernel's scheduler counts them (proc_pid_schedstat(5)): other processes
    on the host make them grow, and so do a control group's quota and a lower priority; sleeping does not. Empty where
    the kernel does not count them (without CONFIG_SCHED_INFO, which Debian's kernels have). A process may be missing
    that has lost a sibling meanwhile (proc_pid_children(5)).
    """
    waits: dict[int, float] = {}
    processes = [os.getpid()]
    while processes:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            tasks = f"/proc/{processes.pop()}/task"
            for thread in os.listdir(tasks):  # noqa: PTH208  # with pathlib all of this takes 2.6 times as long
                with contextlib.suppress(OSError):
                    waits[int(thread)] = int(_content(f"{tasks}/{thread}/schedstat").split()[1]) / 1e9
                    processes += map(int, _content(f"{tasks}/{thread}/children").split())
    return waits


def _content(file: str) -> bytes:
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _READ_MAX)
    finally:
        os.close(descriptor)


class RecentWaits:
    """Processor waits for all threads that ask, so that many who wait at the same time read them once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read, self._waits = -math.inf, dict[int, float]()

    def since(self, earliest: float) -> Mapping[int, float]:
        """``processor_waits()`` as they were at ``earliest`` (the host's monotonic seconds) or later."""
        with self._lock:
            if self._read < earliest:
                self._read, self._waits = time.monotonic(), processor_waits()
            return self._waits
