# SPDX-License-Identifier: GPL-2.0-only
"""The taint mask of a guest's kernel: what has happened to it, as bits that stay set until it boots again."""

from __future__ import annotations

from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest

_FILE = "/proc/sys/kernel/tainted"
_QUOTED = 40


def taint_mask(guest: Guest) -> int:
    """The mask now. Raises GuestError where it cannot be read, or is no number."""
    text = guest.get(_FILE).decode("utf-8", errors="replace").strip()
    if not (text.isascii() and text.isdecimal()):
        raise GuestError(f"the guest's kernel has no number for its taint: {text[:_QUOTED]!r}", where=_FILE)
    return int(text)
