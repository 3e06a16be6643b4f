# SPDX-License-Identifier: GPL-2.0-only
"""How many guests a worker runs at once, and how much memory they may have together."""

from __future__ import annotations

import os
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.guest.host_memory import host_memory_mib
from orchestrator.memory_size import size_mib

MOST_GUESTS = 1024
"""Of one worker."""

_RESERVED_MIB = 1024
"""Of the host's memory, for all but guests."""

SIZES = "expected a size such as 8G or 1500M"
"""What a worker's memory may be, for whoever has written something else."""


@dataclass(frozen=True)
class Room:
    """What a worker offers: guests at once, and MiB for all of them with their QEMU."""

    guests: int
    memory_mib: int

    @classmethod
    def of_host(cls, share: int = 1) -> Room:
        """An equal share of this host: a guest for each processor that we may use."""
        cores = len(os.sched_getaffinity(0))
        return cls(max(1, cores // share), max(1, (host_memory_mib() - _RESERVED_MIB) // share))

    def limited(self, guests: int | None, memory: str | None) -> Room:
        """The same with what a user has said; ``memory`` is a size such as ``8G``. Raises UsageError."""
        given = self.memory_mib if memory is None else size_mib(memory)
        if given is None:
            raise UsageError(f"found {memory!r}; {SIZES}", where="--memory")
        return Room(self.guests if guests is None else guests, given)
