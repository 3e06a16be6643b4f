# SPDX-License-Identifier: GPL-2.0-only
"""Is a guest that gets hardly any processor still no hang, and one that does nothing there as well?"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.errors import CommandTimeout
from orchestrator.guest.guest import Guest

NICENESS = 12
"""A fifteenth of a processor that a busy process is on as well: weights of 70 and 1024 (sched_prio_to_weight)."""

MARGIN = 4
"""A limit in what the work takes; less than what it takes by the host's clock beside a busy process."""

WORK = ("sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done")

pytestmark = pytest.mark.guest(kernel="lab-i386-up", timing="tcg")


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def starved(pid: int) -> Iterator[None]:
    """A process on one processor with a busy one, which has fifteen times its weight."""
    processor = min(os.sched_getaffinity(0))
    for thread in (int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()):
        os.sched_setaffinity(thread, {processor})
        os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
    spin = f"import os; os.sched_setaffinity(0, {{{processor}}})\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-c", spin])
    try:
        yield
    finally:
        busy.kill()
        busy.wait()


@pytest.mark.nightly("a boot that takes fifteen times as long: a minute")
def test_a_guest_that_gets_hardly_any_processor_is_no_hang(guest: Guest) -> None:
    assert guest.pid is not None
    before = processor_seconds(guest.pid)
    guest.succeed(WORK)
    work = processor_seconds(guest.pid) - before
    with starved(guest.pid):
        guest.succeed(WORK, time_limit=MARGIN * work)
        with pytest.raises(CommandTimeout, match="sleep did not end within"):
            guest.run(["sleep", "100000"], time_limit=0.5)
        assert guest.succeed(["echo", "alive"]).text == "alive\n"
