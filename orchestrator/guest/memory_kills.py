# SPDX-License-Identifier: GPL-2.0-only
"""Whether the OOM killer has ended QEMU. Any user may read the count of such kills; the log may be root's alone.

The count is that of the lab's control group: ``memory.events`` (version 2), ``memory.oom_control`` (version 1). A
host without such groups counts all processes in ``/proc/vmstat``. All three came with Linux 4.13.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

from orchestrator.errors import (
    GuestExit,
)
from orchestrator.guest.slots import memory_files

_HOST = Path("/proc/vmstat")


_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def memory_kills() -> int | None:
    """The number of processes that the OOM killer has killed; None if it is not counted."""
    paths = [files[0] for files in memory_files("memory.oom_control", "memory.events")]
    for file in (*paths, _HOST):
        try:
            counted = _COUNT.search(file.read_text())
        except OSError:  # not mounted, or the root group, which lacks the file
            continue
        if counted is not None:
            return int(counted[1])
    return None


def explain_kill(ended: GuestExit, before: int | None) -> None:
    """If QEMU was killed, explain by whom in the hint; ``before`` is the count of kills before its start."""
    if ended.status != -signal.SIGKILL:
        return
    now = memory_kills()
    if before is None or now is None or now <= before:
        ended.hint = "another program or a person killed it; the system killed no process for lack of memory"
        if now is None:
            ended.hint = "the system may have killed it for lack of memory, which it does not count here; see its log"
    else:
        ended.hint = (
            "the system has killed processes for lack of memory meanwhile: free some, run fewer guests in parallel"
            " (--jobs), or give this one less"
        )
