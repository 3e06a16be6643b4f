# SPDX-License-Identifier: GPL-2.0-only
"""What is in a map of BPF programs, and what has come into it, as the guest's tool says in a line.

``images/bpf/map_trial.h`` describes the line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.errors import EvidenceError

UNTRIED = {
    "memory": (
        "the lab keeps at most 32 MiB of what is in maps",
        "give it a smaller max_entries, or smaller keys and values",
    ),
    "refused": (
        "the kernel does not let user space read it and take something out",
        "do not freeze it, and let bpf() read and delete what is in it",
    ),
    "slots": ("it has more than 1048576 slots for maps or programs", "give it a smaller max_entries"),
    "events": ("the kernel opens no perf event for each CPU", "send the records through a ring buffer"),
    "maps": ("the lab tries 512 maps, and 64 of a program", "measure fewer programs at once"),
    "programs": ("the lab follows tail calls into 512 programs", "give the program arrays fewer programs"),
    "unopened": ("the kernel does not open it", "measure the program while nobody else removes its maps"),
}
"""Why map_trial.c, or map_reader.c, has not tried a map, and what to do."""
_LINE = re.compile(
    r"(\d{1,3}) (\d{1,10}) (\d{1,10}) (\d{1,20}) (\d{1,20}) "
    rf"([01]|{'|'.join(UNTRIED)}) (\d{{1,20}}) ([\w.-]{{1,15}})"
)
_LONGEST = 1 << 16
"""Characters: MOST_MAPS of map_trial.c, 512, and a line for those beyond, with at most 110 each."""


class MapUse(NamedTuple):
    """A map: how much was in it, ``each`` put in at once, whether that left it short of room, and what came in.

    What user space has to provide, and has not, leaves it short as well. An LRU map is short once keys of it are gone.
    ``untried`` is a key of ``UNTRIED`` where nothing is known of it.
    """

    type: int
    number: int
    entries: int
    used: int
    each: int
    is_short: bool
    new: int
    name: str
    untried: str = ""

    @classmethod
    def of(cls, match: re.Match[str]) -> MapUse:
        kind, number, entries, used, each = map(int, match.groups()[:5])
        room, new, name = match.groups()[5:]
        return cls(kind, number, entries, used, each, room == "1", int(new), name, room if room in UNTRIED else "")


def map_uses(said: str) -> Sequence[MapUse]:
    """What the guest's tool says of maps. Raises EvidenceError for anything else."""
    lines = said[:_LONGEST].splitlines()
    matches = [match for match in map(_LINE.fullmatch, lines) if match]
    if len(matches) != len(lines) or len(said) > _LONGEST:
        raise EvidenceError(f"the guest does not say what is in the maps: {lines[:3]}"[:200])
    return [MapUse.of(match) for match in matches]
