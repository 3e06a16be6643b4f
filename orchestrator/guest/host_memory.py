# SPDX-License-Identifier: GPL-2.0-only
"""How much memory may the lab and its guests have? What the host has, or less where a control group limits it.

A group's limit is in ``memory.max`` (version 2) or ``memory.limit_in_bytes`` (version 1) of its folder, and the limits
of the groups above it hold as well.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

from orchestrator.errors import HostError
from orchestrator.guest.control_groups import memory_files


def host_memory_mib() -> int:
    """MiB that this process and all that it starts may have."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([physical, *_limits()]) >> 20


def check_memory(memory_mib: int) -> None:
    """Raise HostError for a guest with more memory than there can be, before the system kills its QEMU for it."""
    there = host_memory_mib()
    if memory_mib > there:
        raise HostError(
            f"a guest with {memory_mib} MiB of memory does not fit: the lab may have {there} MiB on this host",
            hint="give the guest less memory, or the lab's control group more (memory.max; version 1:"
            " memory.limit_in_bytes)",
        )


def _limits() -> Iterator[int]:
    for file in itertools.chain.from_iterable(memory_files("memory.limit_in_bytes", "memory.max")):
        try:
            yield int(file.read_text())
        except (OSError, ValueError):  # not mounted, or the root of all groups, which has none; or it is "max"
            continue
