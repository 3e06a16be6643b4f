# SPDX-License-Identifier: GPL-2.0-only
"""Waits until what a guest's kernel has logged is on its console."""

from __future__ import annotations

import secrets
import time

from orchestrator.deadline import Deadline
from orchestrator.guest.console import Console
from orchestrator.guest.framed import FramedChannel

END_OF_LOG = "lab: end of log"
"""In the line that is waited for."""

_LIMIT = 10.0
"""Host seconds for the agent to write a line; and without a new one on the console, for that line to come."""

_BYTES = 2 << 20
"""Bytes on the console among which that line is: a kernel's log buffer has 128 or 256 KiB (CONFIG_LOG_BUF_SHIFT)."""

_PAUSE = 0.01


def wait_for_end_of_log(agent: FramedChannel, console: Console) -> None:
    """Log a line of ours and wait for it: a kernel prints its log in order, so all before it is there then.

    Returns as well where that line does not come. Raises GuestError where the agent does not write it.
    """
    line = f"{END_OF_LOG} {secrets.token_hex(8)}"
    mark = console.length()
    end = mark + _BYTES
    # An alert: the guest's log level may be low.
    agent.put(f"<1>{line}\n".encode(), "/dev/kmsg", mode=0o644, time_limit=_LIMIT)
    deadline = Deadline(_LIMIT)
    while deadline.left() and mark < end:
        lines, after = console.whole_lines(mark)
        if any(line in printed for printed in lines):
            return
        if after > mark:
            mark, deadline = after, Deadline(_LIMIT)
        else:
            time.sleep(_PAUSE)
