# SPDX-License-Identifier: GPL-2.0-only
"""What must be seen at a probe point before a number measured there is believed.

Two witnesses are heard: the guest's kernel (``kprobes/list``) and the live bytes, which QEMU reads from outside. The
first alone can be early: a probe is listed as optimised before its jump is in place.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.catalog.probes import Mechanism, ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.point import SHOWN_BYTES, ProbePoint

KPROBES_LIST = "/sys/kernel/debug/kprobes/list"
OUT_OF_TREE = 1 << 12
UNSIGNED = 1 << 13
"""The kernel's taint bits for modules that are not part of it and not signed (Documentation/admin-guide)."""

_JUMP_BYTES = 5
_FIRST_BYTE: dict[Mechanism, int | None] = {"none": None, "int3": 0xCC, "jump": 0xE9, "ftrace": 0xE8, "jmp": 0xE9}
_FLAGS: dict[Mechanism, str] = {"none": "", "int3": "", "jump": "[OPTIMIZED]", "ftrace": "[FTRACE]", "jmp": ""}


@dataclass(frozen=True)
class Observation:
    """What is at a probe point just now: its bytes, and how the kernel lists it (None: not at all)."""

    live: bytes
    flags: str | None

    @property
    def jump_target(self) -> int | None:
        """Where a five-byte jump or call at the probe point leads, relative to the probe point."""
        if self.live[0] not in (0xE8, 0xE9):
            return None
        return _JUMP_BYTES + int.from_bytes(self.live[1:_JUMP_BYTES], "little", signed=True)


def observe(guest: Guest, point: ProbePoint) -> Observation:
    """Look at a probe point through both witnesses."""
    listing = guest.get(KPROBES_LIST).decode("ascii", errors="replace")
    # "c1107745  k  __ia32_sys_gettimeofday+0x5    [FTRACE]"; addresses are in full for root.
    entry = re.search(rf"^0*{point.address:x} +[krj] +\S+((?: *\[[A-Z]+\])*)", listing, re.MULTILINE)
    flags = re.sub(r"\s+", "", entry[1]) if entry else None
    return Observation(guest.read_memory(point.address, SHOWN_BYTES), flags)


def check_armed(mechanism: Mechanism, point: ProbePoint, seen: Observation, when: str) -> None:
    """Raise EvidenceError unless the probe is there, by this mechanism and no other; ``when`` is for the text."""
    if mechanism == "none":
        check_untouched(point, seen, when)
        return
    if seen.flags is None:
        raise EvidenceError(f"{when}, the kernel lists no probe at {point.name}")
    if seen.flags != _FLAGS[mechanism] or seen.live[0] != _FIRST_BYTE[mechanism]:
        raise EvidenceError(
            f"{when}, {point.name} is not armed by {_DESCRIBED[mechanism]}: its bytes are {seen.live[:6].hex(' ')} "
            f"and the kernel lists it {f'as {seen.flags}' if seen.flags else 'without a flag'}; "
            f"that is {_described(seen)}"
        )
    if mechanism == "int3" and seen.live[1:] != point.original[1:]:
        raise EvidenceError(f"{when}, more than the first byte changed at {point.name}: {seen.live.hex(' ')}")


def check_untouched(point: ProbePoint, seen: Observation, when: str) -> None:
    """Raise EvidenceError unless the original bytes are there and the kernel lists no probe."""
    if seen.live != point.original:
        raise EvidenceError(
            f"{when}, the bytes at {point.name} are {seen.live.hex(' ')}, not the original {point.original.hex(' ')}"
        )
    if seen.flags is not None:
        raise EvidenceError(f"{when}, the kernel still lists a probe at {point.name}")


def check_same(before: Observation, after: Observation, point: ProbePoint, when: str) -> None:
    """Raise EvidenceError when the probe is not armed the way it was: a kprobe may have been optimised since."""
    if before != after:
        raise EvidenceError(
            f"{when}, {point.name} changed from {before.live[:6].hex(' ')} ({_described(before)}) "
            f"to {after.live[:6].hex(' ')} ({_described(after)})"
        )


def check_traps(kind: ProbeKind, hits: int, int3: int) -> None:
    """Raise EvidenceError unless every hit took the breakpoint traps that its mechanism takes.

    A boosted kprobe looks like a single-stepped one in every other way.
    """
    if int3 != hits * kind.int3_per_hit:
        raise EvidenceError(
            f"{hits} hits took {int3} breakpoint traps, not {kind.int3_per_hit} each: "
            "the probe is not handled the way it should be"
        )


def check_taint(mask: int) -> None:
    """Raise EvidenceError for any taint but that of loading our own module."""
    if mask & ~(OUT_OF_TREE | UNSIGNED):
        raise EvidenceError(f"the guest's kernel is tainted ({mask}), by more than a module of our own")


_DESCRIBED: dict[Mechanism, str] = {
    "none": "nothing",
    "int3": "int3",
    "jump": "the kernel's jump optimisation",
    "ftrace": "the function tracer",
    "jmp": "a djprobe's own jump",
}


def _described(seen: Observation) -> str:
    for mechanism, first in _FIRST_BYTE.items():
        if first == seen.live[0] and (seen.flags or "") == _FLAGS[mechanism]:
            return _DESCRIBED[mechanism]
    if seen.flags == _FLAGS["jump"]:
        return f"{_DESCRIBED['jump']}, listed before the jump is in place"
    return "nothing the lab knows" if seen.flags is not None else "no probe"
