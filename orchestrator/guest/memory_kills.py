# SPDX-License-Identifier: GPL-2.0-only
"""Was QEMU killed for want of memory? The system counts such kills, for anybody to read; its log may be root's alone.

The count is that of our control group: ``memory.events`` (version 2), ``memory.oom_control`` (version 1). A host
without such groups has one for all processes in ``/proc/vmstat``. All came with Linux 4.13.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

from orchestrator.errors import GuestExit
from orchestrator.guest.control_groups import memory_files

_HOST = Path("/proc/vmstat")
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def memory_kills() -> int | None:
    """How many processes have been killed for want of memory so far; None where nothing counts them."""
    own = [files[0] for files in memory_files("memory.oom_control", "memory.events")]
    for file in (*own, _HOST):
        try:
            counted = _COUNT.search(file.read_text())
        except OSError:  # not mounted here, or the root of all groups, which has no such file
            continue
        if counted is not None:
            return int(counted[1])
    return None


def explain_kill(ended: GuestExit, before: int | None) -> None:
    """Say in the hint what has killed QEMU, if it was killed; ``before`` are the kills until its start."""
    if ended.status != -signal.SIGKILL:
        return
    now = memory_kills()
    if before is None or now is None or now <= before:
        ended.hint = "another program, or a person, killed it: the system has not done so for want of memory"
        if now is None:
            ended.hint = "the system may have killed it for want of memory, which it does not count here; see its log"
    else:
        ended.hint = (
            "the system has killed processes for want of memory meanwhile: free some, run fewer guests side by side"
            " (--jobs), or give this one less"
        )
