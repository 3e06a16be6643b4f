# SPDX-License-Identifier: GPL-2.0-only
"""How often did a guest trap? Counted by QEMU, from outside.

The emulator writes a record for every exception and interrupt that it delivers while this log is on. It is on for a
counting pass only, never while anything is timed, and needs TCG: a KVM guest's traps do not pass through QEMU.

A guest decides how much is logged: 1 KB for each trap. So the log goes into a pipe, and a thread keeps nothing of it
but the counts. QEMU logs with its big lock held: where nobody read the pipe, not even its monitor would answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from orchestrator.guest.monitor import Monitor

Ring = Literal[0, 3]
INT3 = 3
"""The breakpoint exception's vector."""

# "     2: v=03 e=0000 i=1 cpl=0 IP=0060:c1093a15 ...", and twenty lines of registers behind each. A pattern that begins
# with a constant is searched for at the speed of memchr().
_RECORDS = {ring: re.compile(rb": v=([0-9a-f]{2}) e=[0-9a-f]{4} i=[01] cpl=%d " % ring) for ring in (0, 3)}
_RECORD_BYTES = 24
"""What the pattern matches."""

_PIPE_BYTES = 1 << 20
"""As large as an ordinary user's pipe may be (/proc/sys/fs/pipe-max-size)."""
_PAUSE_MS = 5
"""Between two readings: QEMU writes each line by itself, and to wake a reader for each takes longer than to log it."""
_PIPE_MODE = 0o622
"""QEMU opens the pipe anew by its name in /proc, perhaps as a user of its own."""


@contextlib.contextmanager
def counted_interrupts(monitor: Monitor, ring: Ring = 0) -> Iterator[Counter[int]]:
    """Count the exceptions and interrupts that fall into code of a ring, by vector; the counter is filled at the end.

    Ring 0 is the kernel, 3 its programs.
    """
    counts: Counter[int] = Counter()
    with _counting_pipe(counts, ring) as pipe, monitor.passed(pipe) as name:
        monitor.human(f'logfile "{name}"')
        monitor.human("log int")
        try:
            yield counts
        finally:
            # Each line is in the pipe when QEMU has written it: the log is line-buffered (util/log.c).
            monitor.human("log none")


@contextlib.contextmanager
def _counting_pipe(counts: Counter[int], ring: Ring) -> Iterator[int]:
    """The end of a pipe to write records to; ``counts`` has those that were written when this ends."""
    reading, writing = os.pipe()
    ending, end = os.pipe()
    os.fchmod(writing, _PIPE_MODE)
    with contextlib.suppress(PermissionError):  # of a user with many pipes; a smaller one only takes longer
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    thread = threading.Thread(target=_count, args=(reading, ending, counts, _RECORDS[ring]), name="traps", daemon=True)
    thread.start()
    try:
        yield writing
    finally:
        os.close(end)
        thread.join()
        for descriptor in (reading, writing, ending):
            os.close(descriptor)


def _count(reading: int, ending: int, counts: Counter[int], record_of: re.Pattern[bytes]) -> None:
    """Count records until the other end of ``ending`` is closed, and all that is in the pipe by then."""
    os.set_blocking(reading, False)
    poll = select.poll()
    poll.register(ending, select.POLLIN)
    rest, left = b"", _PIPE_BYTES
    while left > 0:
        # A QEMU that answers no more may still log: of what comes after the end no more is read than a pipe holds.
        is_ending = bool(poll.poll(_PAUSE_MS))
        try:
            text = os.read(reading, _PIPE_BYTES)
        except BlockingIOError:
            if is_ending:
                return
            continue
        left -= len(text) if is_ending else 0
        text = rest + text
        counts.update(int(record[1], 16) for record in record_of.finditer(text))
        # Less than a whole record: none is counted twice.
        rest = text[1 - _RECORD_BYTES :]
