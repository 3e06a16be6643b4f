# SPDX-License-Identifier: GPL-2.0-only
"""A trial of the maps of BPF programs: whether hits find room in them, and what else user space has to provide.

While calls are measured nobody takes anything out of a program's maps. Once one is full, the kernel refuses what a hit
puts in, and the hit takes a shorter way; the same where user space has to put something in first. Nothing tells that
afterwards. So before hits are counted, the guest's tool makes room in each map that is full: what the counted hits put
there, the timed ones could not. The guest's side is ``images/bpf/map_trial.c``; perf event arrays have their reader.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import cut
from orchestrator.probes.bpf_program import TOOL, BpfProgram
from orchestrator.probes.map_reader import MapReader
from orchestrator.probes.map_use import UNTRIED, MapUse, map_uses
from orchestrator.results.contract import LONGEST_PHRASE
from orchestrator.results.parameters import BPF_MAP_STATES, BPF_NEW_KEYS

_GO, _SAID = "/tmp/map-trial.go", "/tmp/map-trial.said"  # noqa: S108 - in the guest
_LONGEST_NAME = 15
"""BPF_OBJ_NAME_LEN of include/uapi/linux/bpf.h, without the NUL."""
_CELL = 8
"""Entries that all of a cell's calls put into a map, as a multiple of those of the counted calls: warming and timed
calls, disturbed batches, a profile's calls; 5900 hits of a program whose calls vary, seen on Linux 6.1. A map that
these would fill is refused, whether it is full by now or not, so that equal inputs end alike."""
_ALL = 100
_FEW = 5
"""Entries that other processes may add during 100 calls."""

_HASH, _PROGRAMS, _EVENTS, _PERCPU_HASH, _STACKS = 1, 3, 4, 5, 7
_LRU, _PERCPU_LRU, _TRIE, _QUEUE, _STACK, _RING, _COMMANDS = 9, 10, 11, 22, 23, 27, 31
"""enum bpf_map_type of include/uapi/linux/bpf.h."""
_BUFFERS = (_RING, _EVENTS)
_LRU_KINDS = (_LRU, _PERCPU_LRU)
_EVICTS = "evicts old keys for new ones, and had room for the first of them: hits differ"
_KEYED = (_HASH, _PERCPU_HASH, _TRIE, *_LRU_KINDS)
_FILLED = {**dict.fromkeys(_KEYED, "keys"), _QUEUE: "elements", _STACK: "elements", **dict.fromkeys(_BUFFERS, "bytes")}
"""The maps that hits fill, and what with."""
_UNATTENDED = {
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


class MapTrial:
    """The maps of programs over all counting passes of an attachment, and the ``reader`` of what they send."""

    who = "alone"

    def __init__(self, guest: Guest, programs: Iterable[BpfProgram], reader: MapReader | None = None) -> None:
        self._guest, self._reader = guest, MapReader(guest, 0) if reader is None else reader
        self._folders = list(dict.fromkeys(program.folder for program in programs))
        self._uses: dict[int, MapUse] = {}
        # Of maps that were full once, what was in them, and what has come in since: a hit may bring the same each time.
        self._short: dict[int, int] = {}
        self._came = Counter[int]()
        self._calls = 0

    @contextlib.contextmanager
    def trying(self) -> Iterator[None]:
        """Make room, and look what has come into the maps at the end. Raises EvidenceError for an unreadable answer.

        Behind ``fill`` nothing may have come in.
        """
        if self._reader.is_filled:
            yield
            self._reader.check_full()
            return
        self._reader.begin()
        script = f'rm -f {_GO} {_SAID}; mkfifo {_GO} {_SAID} && exec "$0" try "$@"'
        said = self._guest.succeed(["sh", "-c", script, TOOL, self.who, _GO, _SAID, *self._folders]).text
        if not re.fullmatch(r"\d{1,3}\n", said):
            raise EvidenceError(f"the guest does not say how many maps are tried: {said[:40]!r}")
        if int(said) == 0:
            yield
            self._keep(self._reader.uses())
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
        self._keep([*uses, *self._reader.uses()])

    def _keep(self, uses: Sequence[MapUse]) -> None:
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

    def written_buffers(self) -> Sequence[str]:
        """The names of the ring buffers and perf event arrays that counted hits have written into."""
        return [use.name for use in self._uses.values() if use.type in _BUFFERS and use.new]

    def buffers_of_events(self) -> Mapping[str, int]:
        """The bytes of a CPU's buffer of each perf event array that counted hits have written into."""
        return {use.name: use.entries for use in self._uses.values() if use.type == _EVENTS and use.new}

    def has_tried(self, name: str) -> bool:
        """Whether hits may use a map of this name, of which the kernel keeps 15 characters."""
        return name[:_LONGEST_NAME] in [use.name for use in self._uses.values()]

    def facts(self) -> Mapping[str, str]:
        """What hits find in maps with keys; and those that get new ones, in five or more of a hundred calls."""
        keyed = [use for use in self._uses.values() if use.type in _KEYED and self._calls and not use.untried]
        shares = {use.number: min(100, 100 * use.new / self._calls) for use in keyed}
        states = [f"{use.name}: {_state(use, shares[use.number])}" for use in keyed]
        grown = [
            f"{shares[use.number]:.0f} of 100 calls add a key to map {use.name}"
            for use in keyed
            if shares[use.number] >= _FEW
        ]
        return {
            **({BPF_MAP_STATES: cut(", ".join(states), LONGEST_PHRASE)} if states else {}),
            **({BPF_NEW_KEYS: f"{', '.join(grown)}: those insert, and do not update"} if grown else {}),
        }

    def named(self, use: MapUse) -> str:
        return f"map {use.name}"

    def remedy(self, use: MapUse, needed: int) -> str:
        if use.type == _EVENTS:
            return "the lab's reader has no larger buffer: send less at a hit, or make fewer calls"
        return f"with max_entries {_power_of_two(needed)} it has room for what the calls of a cell add"

    def _ask(self) -> str:
        return self._guest.succeed(["sh", "-c", f"echo >{_GO}; cat {_SAID}; rm {_GO} {_SAID}"]).text

    def _refusal(self, use: MapUse, hits: int) -> EvidenceError | None:
        is_short = self._came[use.number] > 0
        if use.untried:
            why, hint = UNTRIED[use.untried]
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
    """The same of the programs of a tool, their ``owner``: it reads what they send, and says itself what is lost."""

    who = "attended"
    owner = "bpftrace"

    def named(self, use: MapUse) -> str:
        if self.owner != "bpftrace":
            return f"{self.owner}'s map {use.name}"
        # The kernel writes AT_ for the @ of a map's name.
        return f"bpftrace's map {use.name.replace('AT_', '@', 1)}"

    def remedy(self, use: MapUse, needed: int) -> str:
        return "key the map by what repeats from call to call" if self.owner == "bpftrace" else "let it remember less"


def _state(use: MapUse, share: float) -> str:
    """In words, the share of a hundred calls that insert; no more than five may be other processes'."""
    if share >= _FEW:
        return "insert" if round(share) == _ALL else f"{share:.0f} of 100 insert"
    return "no keys" if not use.used and not use.new else "keys are there"


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
