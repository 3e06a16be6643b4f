# SPDX-License-Identifier: GPL-2.0-only
"""The taint mask of a guest's kernel: what has happened to it, as bits that stay set until it boots again."""

from __future__ import annotations

from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value, whole_number

_FILE = "/proc/sys/kernel/tainted"
_QUOTED = 40


def taint_mask(guest: Guest) -> int:
    """The mask now. Raises GuestError where it cannot be read, or is no number."""
    text = kernel_value(guest, _FILE)
    mask = whole_number(text)
    if mask is None:
        raise GuestError(f"the guest's kernel has no number for its taint: {text[:_QUOTED]!r}", where=_FILE)
    return mask
