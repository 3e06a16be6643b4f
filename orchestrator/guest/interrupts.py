# SPDX-License-Identifier: GPL-2.0-only
"""How often did a guest trap? Counted by QEMU, from outside.

The emulator writes a record for every exception and interrupt that it delivers while this log is on. It is on for a
counting pass only, never while anything is timed, and needs TCG: a KVM guest's traps do not pass through QEMU.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from orchestrator.guest.monitor import Monitor

INT3 = 3
"""The breakpoint exception's vector."""

_RECORD = re.compile(rb"^ *\d+: v=([0-9a-f]{2}) e=[0-9a-f]{4} i=[01] cpl=([0-3]) ", re.MULTILINE)


@contextlib.contextmanager
def counted_interrupts(monitor: Monitor) -> Iterator[Counter[int]]:
    """Count the exceptions and interrupts delivered to kernel code, by vector; the counter is filled at the end."""
    counts: Counter[int] = Counter()
    with tempfile.TemporaryDirectory(prefix="orchestrator-interrupts-") as folder:
        log = Path(folder) / "log"
        monitor.human(f'logfile "{log}"')
        monitor.human("log int")
        try:
            yield counts
        finally:
            monitor.human("log none")
        with log.open("rb") as file:
            for line in file:
                if (record := _RECORD.match(line)) and record[2] == b"0":
                    counts[int(record[1], 16)] += 1
