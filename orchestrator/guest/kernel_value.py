# SPDX-License-Identifier: GPL-2.0-only
"""One value that a file of the guest's kernel has: of /proc, of sysfs, or of a module's parameters."""

from __future__ import annotations

import re
from typing import Protocol

from orchestrator.guest.channel import COMMAND_LIMIT

_LARGEST = 4096
"""Bytes: a page, which the kernel's own files of one value do not exceed (sysfs_emit() of fs/sysfs/file.c)."""

# Python refuses to read more than 4300 digits as a number.
_NUMBER = re.compile(r"[0-9]{1,20}")


class HasFiles(Protocol):
    """A guest, as far as its files are read."""

    def get(self, source: str, *, time_limit: float = ..., largest: int = ...) -> bytes:
        """Read a file of the guest whole."""
        ...


def kernel_value(guest: HasFiles, file: str, *, time_limit: float = COMMAND_LIMIT) -> str:
    """What the file says, without the spaces around it. Raises GuestError where it cannot be read, or is no value."""
    return guest.get(file, time_limit=time_limit, largest=_LARGEST).decode("ascii", errors="replace").strip()


def whole_number(text: str) -> int | None:
    """The number that a value is, of up to 64 bits; None where it is none."""
    return int(text) if _NUMBER.fullmatch(text) else None
