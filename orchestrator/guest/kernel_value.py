# SPDX-License-Identifier: GPL-2.0-only
"""Files with a single value: of /proc, sysfs, or a module's parameters."""

from __future__ import annotations

import re

from orchestrator.guest.channel import COMMAND_LIMIT
from orchestrator.guest.commands import GuestCommands

_LARGEST = 4096
"""Bytes: a page, the limit of the kernel's files of one value (sysfs_emit() of fs/sysfs/file.c)."""

# Python refuses to convert more than 4300 digits.
_NUMBER = re.compile(r"[0-9]{1,20}")


def kernel_value(guest: GuestCommands, file: str, *, time_limit: float = COMMAND_LIMIT) -> str:
    """A file's stripped text. Raises GuestError if it cannot be read, or is too long for a value."""
    return guest.get(file, time_limit=time_limit, largest=_LARGEST).decode("ascii", errors="replace").strip()


def whole_number(text: str) -> int | None:
    """A value as a number of up to 64 bits; None if it is not one."""
    return int(text) if _NUMBER.fullmatch(text) else None
