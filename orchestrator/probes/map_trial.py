# SPDX-License-Identifier: GPL-2.0-only
"""A trial of the maps of BPF programs: whether hits find room in them, and what else user space has to provide.

While calls are measured nobody takes anything out of a program's maps. Once one is full, the kernel refuses what a hit
puts in, and the hit takes a shorter way; the same where user space has to put something in first. Nothing tells that
afterwards. So before hits are counted, the guest's tool makes room in each map that is full, and opens perf events
where there are none: what the counted hits put there, the timed ones could not. The guest's side is
``images/bpf/map_trial.c``.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.guest import Guest
from orchestrator.probes.bpf_program import TOOL, BpfProgram
from orchestrator.results.parameters import BPF_NEW_KEYS

_GO, _SAID = "/tmp/map-trial.go", "/tmp/map-trial.said"  # noqa: S108 - in the guest
_UNTRIED = {
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
"""Why map_trial.c has not tried a map, and what to do."""
_LINE = re.compile(
    r"(\d{1,3}) (\d{1,10}) (\d{1,10}) (\d{1,20}) (\d{1,20}) "
    rf"([01]|{'|'.join(_UNTRIED)}) (\d{{1,20}}) ([\w.-]{{1,15}})"
)
_LONGEST = 1 << 16
"""Characters: MOST_MAPS of map_trial.c, 512, and a line for those beyond, with at most 110 each."""
_LONGEST_NAME = 15
"""BPF_OBJ_NAME_LEN of include/uapi/linux/bpf.h, without the NUL."""
_CELL = 8
"""Entries that all of a cell's calls put into a map, as a multiple of those of the counted calls: warming and timed
calls, disturbed batches, a profile's calls; 5900 hits of a program whose calls vary, seen on Linux 6.1. A map that
these would fill is refused, whether it is full by now or not, so that equal inputs end alike."""
_FEW = 5
"""Entries that other processes may add during 100 calls."""

_HASH, _PROGRAMS, _EVENTS, _PERCPU_HASH, _STACKS = 1, 3, 4, 5, 7
_LRU, _PERCPU_LRU, _TRIE, _QUEUE, _STACK, _RING, _COMMANDS = 9, 10, 11, 22, 23, 27, 31
"""enum bpf_map_type of include/uapi/linux/bpf.h."""
_LRU_KINDS = (_LRU, _PERCPU_LRU)
_EVICTS = "evicts old keys for new ones, and had room for the first of them: hits differ"
_KEYED = (_HASH, _PERCPU_HASH, _TRIE, *_LRU_KINDS)
_FILLED = {**dict.fromkeys(_KEYED, "keys"), _QUEUE: "elements", _STACK: "elements", _RING: "bytes"}
"""The maps that hits fill, and what with."""
_UNATTENDED = {
    _EVENTS: (
        "nobody reads {}, a perf event array: bpf_perf_event_output() fails with ENOENT",
        "the lab has no reader: send the records through a ring buffer that has room for them all",
    ),
    _PROGRAMS: (
        "{}, a program array, is empty: a tail call goes on behind the call",
        "name its programs in the source: .values = { [0] = (void *)&function }",
    ),
    _COMMANDS: (
        "nobody writes into {}, a user ring: bpf_user_ringbuf_drain() finds no sample",
        "the lab has no writer: measure the program without it",
    ),
    _STACKS: (
        "stacks share a bucket of {}: bpf_get_stackid() fails with EEXIST for the later one",
        "give it a larger max_entries, or BPF_F_REUSE_STACKID",
    ),
}


class MapUse(NamedTuple):
    """A map: how much was in it, ``each`` put in at once, whether that left it short of room, and what came in.

    What user space has to provide, and has not, leaves it short as well. An LRU map is short once keys of it are gone.
    ``untried`` is a key of ``_UNTRIED`` where nothing is known of it.
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
        return cls(kind, number, entries, used, each, room == "1", int(new), name, room if room in _UNTRIED else "")


class MapTrial:
    """The maps of programs over all counting passes of an attachment."""

    who = "alone"

    def __init__(self, guest: Guest, programs: Iterable[BpfProgram]) -> None:
        self._guest = guest
        self._folders = list(dict.fromkeys(program.folder for program in programs))
        self._uses: dict[int, MapUse] = {}
        # Of maps that were full once, what was in them, and what has come in since: a hit may bring the same each time.
        self._short: dict[int, int] = {}
        self._came = Counter[int]()
        self._calls = 0

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        """Make room, and look what has come into the maps at the end. Raises EvidenceError for an unreadable answer."""
        script = f'rm -f {_GO} {_SAID}; mkfifo {_GO} {_SAID} && exec "$0" try "$@"'
        said = self._guest.succeed(["sh", "-c", script, TOOL, self.who, _GO, _SAID, *self._folders]).text
        if not re.fullmatch(r"\d{1,3}\n", said):
            raise EvidenceError(f"the guest does not say how many maps are tried: {said[:40]!r}")
        if int(said) == 0:
            yield
            return
        try:
            yield
        except GuestError:
            raise
        except BaseException:
            self._ask()  # a process waits for that, and ends
            raise
        uses = map_uses(self._ask())
        if len(uses) != int(said):
            raise EvidenceError(f"the guest tried {int(said)} maps and says what is in {len(uses)}")
        self._uses = {use.number: use for use in uses}
        for use in uses:
            if use.is_short:
                self._short.setdefault(use.number, use.used)
            if use.number in self._short:
                self._came[use.number] += use.new

    def check(self, calls: int, hits: int) -> None:
        """Raise EvidenceError for a map that was full when hits put something in, that they may fill, or untried."""
        self._calls = calls
        for use in self._uses.values() if calls else ():
            refusal = self._refusal(use, hits)
            if refusal is not None:
                raise refusal

    def has_tried(self, name: str) -> bool:
        """Whether hits may use a map of this name, of which the kernel keeps 15 characters."""
        return name[:_LONGEST_NAME] in [use.name for use in self._uses.values()]

    def facts(self) -> Mapping[str, str]:
        """Which maps get new keys, in five or more of a hundred calls: those insert, and do not update."""
        keyed = [use for use in self._uses.values() if use.type in _KEYED and self._calls]
        shares = [(use.name, min(100, 100 * use.new / self._calls)) for use in keyed]
        grown = [f"{share:.0f} of 100 calls add a key to map {name}" for name, share in shares if share >= _FEW]
        return {BPF_NEW_KEYS: f"{', '.join(grown)}: those insert, and do not update"} if grown else {}

    def named(self, use: MapUse) -> str:
        return f"map {use.name}"

    def remedy(self, use: MapUse, needed: int) -> str:
        return f"with max_entries {_power_of_two(needed)} it has room for what the calls of a cell add"

    def _ask(self) -> str:
        return self._guest.succeed(["sh", "-c", f"echo >{_GO}; cat {_SAID}; rm {_GO} {_SAID}"]).text

    def _refusal(self, use: MapUse, hits: int) -> EvidenceError | None:
        is_short = self._came[use.number] > 0
        if use.untried:
            why, hint = _UNTRIED[use.untried]
            named = self.named(use) if use.number else "a map"
            return EvidenceError(f"{named} was not tried, and may be full: {why}", hint=hint)
        if is_short and use.type in _UNATTENDED:
            what, hint = _UNATTENDED[use.type]
            return EvidenceError(what.format(self.named(use)), hint=hint)
        if use.type not in _FILLED:
            return None
        filling, needed = _FILLED[use.type], use.new * _CELL
        least = max(needed, hits * use.each * _CELL)
        remedy = self.remedy(use, least if least > use.entries else least + use.entries)
        if is_short and use.type in _LRU_KINDS:
            return EvidenceError(f"{self.named(use)} {_EVICTS}", hint=remedy)
        if is_short:  # what came in is no more than there was room for
            full = f"{self.named(use)} is full with {self._short[use.number]} {filling}"
            return EvidenceError(f"{full}: the kernel refuses what hits add", hint=remedy)
        if use.type in _LRU_KINDS and use.entries > 1 and use.new and use.used + needed > use.entries:
            # It evicts at once for many, perhaps none of them while hits were counted.
            return EvidenceError(f"{self.named(use)} {_EVICTS}", hint=remedy)
        if needed > use.entries:
            what = f"{self.named(use)} has room for {use.entries} {filling}, and {hits} hits add {use.new}"
            return EvidenceError(f"{what}: it fills up while calls are measured", hint=self.remedy(use, needed))
        return None


class AttendedMapTrial(MapTrial):
    """The same of bpftrace's programs: it reads what they send, and says itself what is lost."""

    who = "attended"

    def named(self, use: MapUse) -> str:
        # The kernel writes AT_ for the @ of a map's name.
        return f"bpftrace's map {use.name.replace('AT_', '@', 1)}"

    def remedy(self, use: MapUse, needed: int) -> str:
        return "key the map by what repeats from call to call"


def map_uses(said: str) -> Sequence[MapUse]:
    """What the guest's tool says of maps. Raises EvidenceError for anything else."""
    lines = said[:_LONGEST].splitlines()
    matches = [match for match in map(_LINE.fullmatch, lines) if match]
    if len(matches) != len(lines) or len(said) > _LONGEST:
        raise EvidenceError(f"the guest does not say what is in the maps: {lines[:3]}"[:200])
    return [MapUse.of(match) for match in matches]


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
