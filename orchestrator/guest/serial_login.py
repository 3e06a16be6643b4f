# SPDX-License-Identifier: GPL-2.0-only
"""From whatever a console shows to a shell on it: a login is answered, a shell that is there already is recognised."""

from __future__ import annotations

import re
import time
from enum import StrEnum

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestHang
from orchestrator.guest.console import plain_lines
from orchestrator.guest.serial_line import SerialLine

_NUDGE_INTERVAL = 3.0
"""Seconds without a prompt until a newline is sent for a new one: the first may have been printed before the channel
opened, or be lost among the kernel's messages. As many again for each name that was sent: a guest that hardly gets a
processor has not answered the first newline when the next one comes, and asks for a login again after each."""
_ATTEMPTS = 6
"""Times that the user's name is sent: a kernel message may spoil one, and a shell that ends at once brings the prompt
back."""
_QUIET = 0.3
"""Seconds in which a prompt is not followed by anything."""
_SCREEN_MAX = 1 << 14
_CONTROL = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b(?:\[[0-9;?]*[ -/]*)?[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class _Sight(StrEnum):
    """What a console can show, by how the line looks that it ends with."""

    LOGIN = r"(?mi)^.*\blogin: *$"
    CHALLENGE = r"(?mi)^.*\bpassword(?: for .*)?: *$"
    SHELL = r"(?m)^.*[#$%>] *$"


_REFUSAL = re.compile(rb"(?mi)\b(?:login incorrect|authentication failure|permission denied)\b")
_PATTERNS = {sight: re.compile(sight.value.encode()) for sight in _Sight}


def log_in(line: SerialLine, user: str, password: str | None, deadline: Deadline) -> None:
    """Return when the console shows a shell's prompt.

    Raises GuestError when the guest wants a password that we have not, or refuses the one we have; GuestHang, quoting
    what the console shows, at the deadline.
    """
    named = answered = False
    attempts = 0
    screen = b""
    nudged = 0.0
    while deadline.left():
        text = line.read(min(_QUIET, deadline.left()))
        screen = (screen + text)[-_SCREEN_MAX:]
        shown = _CONTROL.sub(b"", screen)
        sight = None if text else _last_sight(shown)
        if sight is _Sight.SHELL:
            return
        if answered and _REFUSAL.search(shown):
            raise GuestError(f"the guest's console refuses {user} with this password")
        if sight is _Sight.LOGIN:
            attempts += 1
            if attempts > _ATTEMPTS:
                hint = "has that user a shell there, and may log in?"
                raise GuestError(f"the guest's console asks for a login again after {user}", hint=hint)
            answer, named, answered = user, True, False
        elif sight is _Sight.CHALLENGE and named:
            if password is None:
                hint = "exec takes it from a file (--password-file); or let the image ask for none"
                raise GuestError(f"the guest's console wants a password for {user}", hint=hint)
            answer, named, answered = password, False, True
        elif time.monotonic() - nudged > _NUDGE_INTERVAL * (1 + attempts):
            answer = ""
        else:
            continue
        line.send(answer.encode("utf-8", "surrogateescape") + b"\n", deadline)
        nudged = time.monotonic()
        screen = b""
    raise GuestHang(
        "the guest's console shows neither a login prompt nor a shell",
        detail=plain_lines(screen)[-10:],
        hint="has the image a login on ttyS0 (a getty)?",
    )


def _last_sight(shown: bytes) -> _Sight | None:
    """What stands last on the console, if anything is known."""
    ends = {
        sight: max((match.end() for match in pattern.finditer(shown)), default=-1)
        for sight, pattern in _PATTERNS.items()
    }
    last = max(ends, key=lambda sight: ends[sight])
    return last if ends[last] >= 0 else None
