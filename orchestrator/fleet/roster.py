# SPDX-License-Identifier: GPL-2.0-only
"""Which worker does which boot: who is in the fleet, who may be believed, and who has room.

Pure bookkeeping of the client's: nothing here talks to anyone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

OVERHEAD_MIB = 192
"""Of QEMU's own memory beside its guest's: 60 to 150 MiB resident were measured."""


class Standing(Enum):
    """What a worker is to the client."""

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
    """Of one that does not work: what for."""
    taken: dict[str, int] = field(default_factory=dict)
    """The MiB of each attempt under way."""
    known: set[str] = field(default_factory=set)
    """The machines of which it has a saved guest, by what identifies them to the client."""
    unchecked: list[tuple[str, ...]] = field(default_factory=list)
    """The ids of the cells of each boot since it was last found to count right."""
    checked: int = 0
    """The number of boots, of all that it has done, up to which it is known to count right."""
    boots: int = 0
    """Boots that it has done since then."""

    @property
    def done(self) -> int:
        """The number of all boots that it has done, or begun and reported of."""
        return self.checked + len(self.unchecked)

    def counts_right(self, done: int) -> None:
        """It was found to count right in a boot of this number."""
        new = max(0, done - self.checked)
        self.checked += len(self.unchecked[:new])
        del self.unchecked[:new]
        self.boots = 0

    @property
    def works(self) -> bool:
        """Whether it gets boots."""
        return self.standing is Standing.ADMITTED

    def has_room(self, memory_mib: int) -> bool:
        """Whether a guest of this size can run beside the others; a single one always can where it fits at all."""
        return len(self.taken) < self.guests and sum(self.taken.values()) + memory_mib <= self.memory_mib


class Roster:
    """All members there are or were."""

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self.host_of_times = ""
        """The name of the one worker on which times are measured; empty while there were none to measure."""

    def joined(self, address: str) -> bool:
        """A worker has come; whether it was not known. An address may be that of one that has gone."""
        known = self._members.get(address)
        if known is not None and known.standing is not Standing.GONE:
            return False
        self._members[address] = Member(address)
        return True

    def left(self, address: str) -> Member | None:
        """A worker has gone; what it was before stays known. None for one that had gone before."""
        member = self._members.get(address)
        if member is None or member.standing is Standing.GONE:
            return None
        if member.standing in (Standing.CANDIDATE, Standing.ADMITTED):
            member.why = "it has left the fleet"
        member.standing = Standing.GONE
        return member

    def __iter__(self) -> Iterator[Member]:
        """Every member, in the order in which they came."""
        return iter(self._members.values())

    def member(self, address: str) -> Member | None:
        """The member at an address."""
        return self._members.get(address)

    def working(self) -> list[Member]:
        """Those that get boots."""
        return [member for member in self if member.works]

    def expected(self) -> bool:
        """Whether some worker works or may still be admitted."""
        return any(member.standing in (Standing.ADMITTED, Standing.CANDIDATE) for member in self)

    def has_candidates(self) -> bool:
        """Whether some worker is being examined."""
        return any(member.standing is Standing.CANDIDATE for member in self)

    def has_lost_host_of_times(self) -> bool:
        """Whether the worker on which times are measured does not work, and nobody who may come is being examined."""
        name = self.host_of_times
        return bool(name) and all(member.name != name for member in self.working()) and not self.has_candidates()

    def slots(self) -> int:
        """Guests at once, of all that work."""
        return sum(member.guests for member in self.working())

    def largest(self) -> int:
        """The MiB of the largest guest that any working member can run."""
        return max((member.memory_mib for member in self.working()), default=0)

    def choose(
        self, memory_mib: int, machine: str, avoided: Iterable[str] = (), *, is_timed: bool = False
    ) -> Member | None:
        """The member that is to do a boot; None while none can.

        One that has a saved guest of the machine comes first, then the one with the most room. ``avoided`` are names of
        members that lost the boot before: they get it only where no other has the memory. All that is timed is done by
        one.
        """
        free = [member for member in self.working() if member.has_room(memory_mib)]
        if is_timed:
            free = [member for member in free if self.host_of_times in ("", member.name)]
        others = [member for member in free if member.name not in set(avoided)]
        could = [member for member in self.working() if member.memory_mib >= memory_mib]
        if not others and any(member.name not in set(avoided) for member in could) and not is_timed:
            return None  # one that has not lost it is busy
        candidates = others or free
        if not candidates:
            return None
        return max(candidates, key=lambda one: (machine in one.known, one.guests - len(one.taken), one.name))
