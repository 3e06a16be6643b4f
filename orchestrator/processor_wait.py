# SPDX-License-Identifier: GPL-2.0-only
"""How long this process, and those that it started, have waited for a processor."""

from __future__ import annotations

import contextlib
import os


def processor_waits() -> dict[int, float]:
    """Seconds that each thread of ours and of all our descendants was ready to run and got no processor, by number.

    They are of the thread's whole life, as the kernel's scheduler counts them (proc_pid_schedstat(5)): other processes
    on the host make them grow, and so do a control group's quota and a lower priority; sleeping does not. Empty where
    the kernel does not count them (without CONFIG_SCHED_INFO, which Debian's kernels have).
    """
    waits: dict[int, float] = {}
    processes = [os.getpid()]
    while processes:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            tasks = f"/proc/{processes.pop()}/task"
            with os.scandir(tasks) as threads:
                numbers = [thread.name for thread in threads]
            for thread in numbers:
                with contextlib.suppress(OSError):
                    waits[int(thread)] = int(_content(f"{tasks}/{thread}/schedstat").split()[1]) / 1e9
                    processes += map(int, _content(f"{tasks}/{thread}/children").split())
    return waits


def _content(file: str) -> bytes:
    """A file of the kernel's, in a third of the time that pathlib takes."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)
