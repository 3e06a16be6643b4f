# SPDX-License-Identifier: GPL-2.0-only
"""How many guests a worker runs at once, and how much memory they may have together."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from orchestrator.errors import UsageError
from orchestrator.guest.host_memory import host_memory_mib

MOST_GUESTS = 1024
"""Of one worker."""

_RESERVED_MIB = 1024
"""Of the host's memory, for all but guests."""

_SIZE = re.compile(r"([1-9][0-9]{0,6})([MG])")
_MIB = {"M": 1, "G": 1024}


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
        return replace(
            self,
            guests=self.guests if guests is None else guests,
            memory_mib=self.memory_mib if memory is None else size_mib(memory),
        )


def size_mib(text: str) -> int:
    """The MiB of a size such as ``8G`` or ``1500M``. Raises UsageError for anything else."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise UsageError(f"found {text!r}; expected a size such as 8G or 1500M", where="--memory")
    return int(found[1]) * _MIB[found[2]]
