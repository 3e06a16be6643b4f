# SPDX-License-Identifier: GPL-2.0-only
"""Counting a guest's traps from outside, by QEMU.

While this log is on, the emulator writes a record for every exception and interrupt that it delivers. It is on only
during a counting pass, never while anything is timed, and needs TCG: a KVM guest's traps do not pass through QEMU.

The guest decides how much is logged, 1 KB per trap. So the log goes into a pipe, and a thread keeps only the counts.
QEMU logs with its big lock held: without a reader of the pipe, not even its monitor would answer.
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

PrivilegeRing = Literal[0, 3]
INT3 = 3
"""The vector of the breakpoint exception."""

# "     2: v=03 e=0000 i=1 cpl=0 IP=0060:c1093a15 ...", each followed by twenty lines of registers. A pattern with a
# constant prefix is searched at the speed of memchr().
_RECORDS = {ring: re.compile(rb": v=([0-9a-f]{2}) e=[0-9a-f]{4} i=[01] cpl=%d " % ring) for ring in (0, 3)}
_RECORD_BYTES = 24
"""The length of a match."""

_PIPE_BYTES = 1 << 20
"""The largest pipe of an ordinary user (/proc/sys/fs/pipe-max-size)."""
_PAUSE_MS = 5
"""Between reads: QEMU writes line by line, and waking a reader for each takes longer than logging it."""
_PIPE_MODE = 0o622
"""QEMU reopens the pipe by its name in /proc, perhaps as another user."""


@contextlib.contextmanager
def counted_interrupts(monitor: Monitor, ring: PrivilegeRing = 0) -> Iterator[Counter[int]]:
    """Count exceptions and interrupts that hit code of a ring, by vector; the counter is filled at the end.

    Ring 0 is the kernel, 3 its programs.
    """
    counts: Counter[int] = Counter()
    with _counting_pipe(counts, ring) as pipe, monitor.passed(pipe) as (_, name):
        monitor.human(f'logfile "{name}"')
        monitor.human("log int")
        try:
            yield counts
        finally:
            # The log is line-buffered (util/log.c): lines already written are in the pipe.
            monitor.human("log none")


@contextlib.contextmanager
def _counting_pipe(counts: Counter[int], ring: PrivilegeRing) -> Iterator[int]:
    """The write end of a pipe for records; on exit ``counts`` has them."""
    reading, writing = os.pipe()
    ending, end = os.pipe()
    os.fchmod(writing, _PIPE_MODE)
    with contextlib.suppress(PermissionError):  # the user has many pipes; a smaller one only takes longer
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
    """Count records until the other end of ``ending`` is closed, including what is in the pipe by then."""
    os.set_blocking(reading, False)
    poll = select.poll()
    poll.register(ending, select.POLLIN)
    rest, left = b"", _PIPE_BYTES
    while left > 0:
        # A QEMU that no longer answers may still log: after the end, read no more than a pipe holds.
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
        # Less than a whole record, so none is counted twice.
        rest = text[1 - _RECORD_BYTES :]
