# SPDX-License-Identifier: GPL-2.0-only
"""How often did a guest trap? Counted by QEMU, from outside.

The emulator writes a record for every exception and interrupt that it delivers while this log is on. It is on for a
counting pass only, never while anything is timed, and needs TCG: a KVM guest's traps do not pass through QEMU.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator

from orchestrator.guest.monitor import Monitor
from orchestrator.guest.shared_file import SharedFile

INT3 = 3
"""The breakpoint exception's vector."""

# "     2: v=03 e=0000 i=1 cpl=0 IP=0060:c1093a15 ...", and twenty lines of registers behind each. A pattern that begins
# with a constant is searched for at the speed of memchr().
_RECORD = re.compile(rb": v=([0-9a-f]{2}) e=[0-9a-f]{4} i=[01] cpl=0 ")


@contextlib.contextmanager
def counted_interrupts(monitor: Monitor) -> Iterator[Counter[int]]:
    """Count the exceptions and interrupts delivered to kernel code, by vector; the counter is filled at the end."""
    counts: Counter[int] = Counter()
    with contextlib.closing(SharedFile()) as log:
        with monitor.passed(log) as name:
            monitor.human(f'logfile "{name}"')
            monitor.human("log int")
            try:
                yield counts
            finally:
                monitor.human("log none")
        with log.mapped() as content:
            counts.update(int(record[1], 16) for record in _RECORD.finditer(content))
