# SPDX-License-Identifier: GPL-2.0-only
"""A place in the program that makes the calls or in its library, and what is there when the program is started.

The bytes are those of a process that is started for it, as the calls' own process is, and is ended before it executes
an instruction of the program; of a library, when the loader has mapped it. They are read beside the file's, which a
uprobe leaves alone: it changes a page of each process.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.errors import CommandFailed, EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import Observation
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.trace_event import TRACEFS

EVENTS = f"{TRACEFS}/uprobe_events"

_LARGEST = 1 << 16
_PAGE = 1 << 12
_PEEKED = re.compile(r"process ((?:[0-9a-f]{2}){1,64})\nfile ((?:[0-9a-f]{2}){1,64})\n")
_DEFINED = re.compile(r"^[pr]:\S+ (/.*):0x0*([0-9a-f]{1,16})(?:\(0x[0-9a-f]+\))?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class UserPoint(ProbePoint):
    """A probe point in a program, which is at a path in the guest; ``file_offset`` is in bytes.

    ``semaphore`` is the place in the file of the counter that the kernel keeps of a static point's probes, or 0. A
    point in a ``library``, a path as well, has its address relative to where a process maps that. ``label`` is the
    file's name in experiments.
    """

    program: str
    file_offset: int
    semaphore: int = 0
    library: str | None = None
    label: str = "program"

    @property
    def name(self) -> str:
        """As an experiment names it: ``program:workload``, ``libc.so.6:malloc``."""
        return f"{self.label}:{super().name}"

    @property
    def file(self) -> str:
        """The file that has the point."""
        return self.library or self.program

    def is_at(self, address: int) -> bool:
        """Whether a hit can have come from an address: each process has a library at other pages."""
        if self.library is None:
            return super().is_at(address)
        return (address - self.address) % _PAGE == 0


def events_at(guest: Guest, point: UserPoint) -> int:
    """How many uprobes tracefs lists at the point."""
    listing = guest.get(EVENTS, largest=_LARGEST).decode("utf-8", errors="replace")
    return [(path, int(offset, 16)) for path, offset in _DEFINED.findall(listing)].count(
        (point.file, point.file_offset)
    )


def observe_program(
    guest: Guest, point: UserPoint, listed: Callable[[Guest, UserPoint], int] = events_at
) -> Observation:
    """Read what a process that is started now has at the point, and how many probes are ``listed`` there.

    Raises EvidenceError where the program's file is not as it was.
    """
    place = ["-a", str(point.address)] if point.library is None else ["-l", point.library]
    try:
        numbers = [str(point.file_offset), str(len(point.original))]
        said = guest.succeed(["peek", *place, *numbers, point.program]).text
    except CommandFailed as error:
        raise EvidenceError(f"the bytes at {point.name} cannot be read", detail=error.detail) from None
    found = _PEEKED.fullmatch(said)
    if found is None:
        raise EvidenceError(f"the bytes at {point.name} cannot be read", detail=said.splitlines()[:4])
    process, file = (bytes.fromhex(text) for text in found.groups())
    if file != point.original:
        raise EvidenceError(
            f"the file of {point.file} has {file.hex(' ')} at {point.name}, not the original {point.original.hex(' ')}"
        )
    number = listed(guest, point)
    return Observation(process, "" if number else None, number)
