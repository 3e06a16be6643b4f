# SPDX-License-Identifier: GPL-2.0-only
"""How long this process, and those that it started, have waited for a processor."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


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
            for thread in Path(f"/proc/{processes.pop()}/task").iterdir():
                with contextlib.suppress(OSError):
                    waits[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
                    processes += map(int, (thread / "children").read_text().split())
    return waits
