# SPDX-License-Identifier: GPL-2.0-only
"""Scheduling boots on workers: the members of the fleet, their room, waiting boots and running ones.

Nothing here communicates with a worker.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orchestrator.experiment.cell import Cell
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootTask
from orchestrator.run.executor import Job

OVERHEAD_MIB = 192
"""QEMU's memory besides its guest's: 60 to 150 MiB resident were measured."""


class Standing(Enum):
    """The state of a worker in the client's view."""

    CANDIDATE = "is being examined"
    ADMITTED = "works"
    REFUSED = "was refused"
    RETIRED = "was retired"
    GONE = "has gone"


@dataclass
class Member:
    """A worker, by its address in the fleet."""

    address: str
    name: str = ""
    guests: int = 0
    memory_mib: int = 0
    standing: Standing = Standing.CANDIDATE
    why: str = ""
    """Why it does not work."""
    taken: dict[str, int] = field(default_factory=dict)
    """MiB of each running attempt."""
    known: set[str] = field(default_factory=set)
    """The machines of which it has a saved guest, by ``PendingBoot.machine``."""
    measured: list[str] = field(default_factory=list)
    """The ids of the cells that it has measured."""
    example: tuple[CellRecord, Job] | None = None
    """Its last record that can be used to verify it."""

    @property
    def works(self) -> bool:
        return self.standing is Standing.ADMITTED

    def has_room(self, memory_mib: int) -> bool:
        return len(self.taken) < self.guests and sum(self.taken.values()) + memory_mib <= self.memory_mib


class Roster:
    """All present and former members."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        """By address, in the order in which they joined."""
        self.host_of_times = ""
        """The name of the one worker for wall-clock times; empty until there were any to measure."""

    def joined(self, address: str) -> bool:
        """A worker has joined; returns whether it was unknown. A former member's address may be reused."""
        known = self.members.get(address)
        if known is not None and known.standing is not Standing.GONE:
            return False
        self.members[address] = Member(address)
        return True

    def left(self, address: str) -> Member | None:
        """A worker has left; its other facts are kept. None if it had left before."""
        member = self.members.get(address)
        if member is None or member.standing is Standing.GONE:
            return None
        if member.standing in (Standing.CANDIDATE, Standing.ADMITTED):
            member.why = "it has left the fleet"
        member.standing = Standing.GONE
        return member

    def working(self) -> list[Member]:
        return [member for member in self.members.values() if member.works]

    def has_candidates(self) -> bool:
        return any(member.standing is Standing.CANDIDATE for member in self.members.values())

    def able(self, memory_mib: int, *, is_timed: bool = False) -> list[Member]:
        """The members that can do a boot once they have room: with enough memory, and one alone for timed boots."""
        able = [member for member in self.working() if member.memory_mib >= memory_mib]
        return [member for member in able if not is_timed or self.host_of_times in ("", member.name)]


def choose(able: Sequence[Member], memory_mib: int, machine: str, avoided: Collection[str] = ()) -> Member | None:
    """The member to do a boot; None while none of the able ones has room.

    Prefers members that have a saved guest of the machine, then those with the most room. ``avoided`` are names of
    members that lost the boot before: they get it only if no other can do it.
    """
    other_members = [member for member in able if member.name not in avoided]
    free = [member for member in other_members or able if member.has_room(memory_mib)]
    return max(
        free, key=lambda member: (machine in member.known, member.guests - len(member.taken), member.name), default=None
    )


@dataclass
class PendingBoot:
    """A job and its remaining cells."""

    job: Job
    left: dict[str, Cell[Any]]
    guests: int
    losses: list[tuple[str, str]] = field(default_factory=list)
    """The workers that it has lost, and the last message of each."""

    @property
    def memory_mib(self) -> int:
        return self.job.artifacts.machine.memory_mib + OVERHEAD_MIB

    @property
    def is_timed(self) -> bool:
        return self.job.task.boot.clock == "wall"

    @property
    def machine(self) -> str:
        """Identifies the machine of which a worker may have a saved guest."""
        guest = self.job.task.boot.guest
        return f"{self.job.artifacts.keys['initramfs']} {guest.cpu} {guest.smp} {guest.memory_mib} {guest.image}"

    @property
    def need(self) -> tuple[int, bool, frozenset[str]]:
        """What decides which workers can do it: its memory, whether it is timed, and the workers that lost it."""
        return self.memory_mib, self.is_timed, frozenset(name for name, _ in self.losses)


@dataclass
class Dispatch:
    """A boot on a worker: of a job, or the calibration, which has no work."""

    name: str
    member: Member
    task: BootTask
    work: PendingBoot | None = None
    has_begun: bool = False
    """Whether any message came."""
    files: int = 0
    bytes: int = 0
    """Total size of its files."""
    last: str = ""
    """The last progress report."""
    outcomes: dict[str, CellRecord] = field(default_factory=dict)
