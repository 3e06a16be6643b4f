# SPDX-License-Identifier: GPL-2.0-only
"""Was QEMU killed for want of memory? The system counts such kills, for anybody to read; its log may be root's alone.

The count is that of our control group: ``memory.events`` (version 2), ``memory.oom_control`` (version 1). A host
without such groups has one for all processes in ``/proc/vmstat``. All came with Linux 4.13.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

from orchestrator.errors import GuestExit

_GROUPS = Path("/proc/self/cgroup")
_MOUNTED = Path("/sys/fs/cgroup")
_HOST = Path("/proc/vmstat")
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def memory_kills() -> int | None:
    """How many processes have been killed for want of memory so far; None where nothing counts them."""
    for file in (*_files_of_groups(), _HOST):
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


def _files_of_groups() -> Iterator[Path]:
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)  # cgroups(7)
        if not controllers:
            yield _MOUNTED / path.lstrip("/") / "memory.events"
        elif "memory" in controllers.split(","):
            yield _MOUNTED / "memory" / path.lstrip("/") / "memory.oom_control"
