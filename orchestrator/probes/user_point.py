# SPDX-License-Identifier: GPL-2.0-only
"""A place in the program that makes the calls or in its library, as seen in a newly started process.

The process is started like that of the calls, and ended before it executes an instruction of the program's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.arch import CALL, Arch
from orchestrator.catalog.probes import KernelChange, KernelFeature, ProbeKind
from orchestrator.errors import CommandFailed, EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import Observation
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.tracefs import TRACEFS

EVENTS = f"{TRACEFS}/uprobe_events"


_PAGE = 1 << 12


_DEFINED = re.compile(r"^[pr]:\S+ (/.*):0x0*([0-9a-f]{1,16})(?:\(0x[0-9a-f]+\))?(?: \w+=.*)?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class UserPoint(ProbePoint):
    """A probe point in a program at a path in the guest; ``file_offset`` is in bytes.

    ``semaphore`` is the file offset of the counter that the kernel keeps of a static point's probes, or 0. A point in a
    ``library`` (a path too) has its address relative to the mapping. ``label`` is the file's name in experiments. One
    that ``is_preloaded`` is in a library that the ``program`` does not need: the loader maps it all the same.
    """

    program: str
    file_offset: int
    semaphore: int = 0
    library: str | None = None
    label: str = "program"
    is_preloaded: bool = False

    @property
    def name(self) -> str:
        """As in experiments: ``program:workload``, ``libc.so.6:malloc``."""
        return f"{self.label}:{super().name}"

    @property
    def file(self) -> str:
        return self.library or self.program

    def is_at(self, address: int) -> bool:
        if self.library is None:
            return super().is_at(address)
        return (address - self.address) % _PAGE == 0


class _Nop(NamedTuple):
    """A nop at which the kernel optimises a uprobe, by its beginning and size, and what the first hit leaves there."""

    beginning: bytes
    size: int
    live: bytes
    feature: KernelFeature


_LARGER_NOP = KernelChange(release="7.2", commit="554ba38456da")


_NOPS = (
    _Nop(
        bytes.fromhex("0f1f440000"),
        5,
        bytes([CALL]),
        KernelFeature(since=KernelChange(release="6.18", commit="ba2bfc97b462"), until=_LARGER_NOP),
    ),
    # The lea leaves the red zone below the stack pointer alone.
    _Nop(bytes.fromhex("662e0f1f84"), 10, bytes.fromhex("488d642480e8"), KernelFeature(since=_LARGER_NOP)),
)
"""The nops that arch/x86/kernel/uprobes.c optimises (can_optimize()): on x86_64 alone, and not across a page."""


_REFUSED_PREFIX = re.compile(rb"[\x66\x67\xf2\xf3\x64\x65]*[\x26\x2e\x36\x3e\xf0]")
"""Prefixes up to es, cs, ss, ds or lock, which is_prefix_bad() refuses wherever the instruction is not optimised."""


def optimised_as(release: str, arch: Arch, point: UserPoint) -> bytes | None:
    """The beginning of what the first hit leaves in the place of a point's nop; None if it leaves the int3."""
    for nop in _NOPS:
        fits = point.original.startswith(nop.beginning) and point.address % _PAGE + nop.size <= _PAGE
        if arch == "x86_64" and fits and nop.feature.lacking_in(release, arch) is None:
            return nop.live
    return None


def check_optimised(release: str, arch: Arch, point: UserPoint, live: bytes) -> None:
    """Raise EvidenceError unless these bytes of a running process are what the kernel makes of the point's nop."""
    expected = optimised_as(release, arch, point)
    if expected is None or not live.startswith(expected):
        raise EvidenceError(f"the process executes {live[:10].hex(' ')} at {point.name}: its uprobe is not optimised")


def optimisation_refusal(kind: ProbeKind, release: str, arch: Arch, point: UserPoint) -> str | None:
    """Why a uprobe at the point is not what the kind says: optimised, or not; None if it is."""
    if kind.site != "program":
        return None
    if optimised_as(release, arch, point) is not None:
        is_right = kind.mechanism == "call"
        return None if is_right else f"the kernel optimises a uprobe at this nop: take {kind.name}-optimized"
    beginning = point.original[:5].hex(" ")
    if _REFUSED_PREFIX.match(point.original):
        # It attaches one all the same, and leaves the instruction as it is.
        return f"uprobes are at no instruction with a prefix of es, cs, ss, ds or lock, as {beginning}"
    if kind.mechanism != "call":
        return None
    nops = " or ".join(nop.beginning.hex(" ") for nop in _NOPS if nop.feature.lacking_in(release, arch) is None)
    where = f"at a nop that begins with {nops}, within a page"
    return f"this kernel optimises uprobes {where}, and {point.name} is {beginning}"


def events_at(guest: Guest, point: UserPoint) -> int:
    """The number of uprobes that tracefs lists at the point."""
    listing = guest.get(EVENTS, largest=1 << 16).decode("utf-8", errors="replace")
    return [(path, int(offset, 16)) for path, offset in _DEFINED.findall(listing)].count(
        (point.file, point.file_offset)
    )


def observe_program(
    guest: Guest, point: UserPoint, listed: Callable[[Guest, UserPoint], int] = events_at
) -> Observation:
    """Read a new process's bytes at the point. Raises EvidenceError for a changed file."""
    place = ["-a", str(point.address)] if point.library is None else ["-l", point.library]
    try:
        numbers = [str(point.file_offset), str(len(point.original))]
        # peek itself is static: of its environment the loader of the program that it starts takes the library.
        environment = ["env", f"LD_PRELOAD={point.library}"] if point.is_preloaded else []
        said = guest.succeed([*environment, "peek", *place, *numbers, point.program]).text
    except CommandFailed as error:
        raise EvidenceError(f"the bytes at {point.name} cannot be read", detail=error.detail) from None
    match = re.fullmatch(r"process ((?:[0-9a-f]{2}){1,64})\nfile ((?:[0-9a-f]{2}){1,64})\n", said)
    if match is None:
        raise EvidenceError(f"the bytes at {point.name} cannot be read", detail=said.splitlines()[:4])
    process, file = (bytes.fromhex(text) for text in match.groups())
    if file != point.original:
        raise EvidenceError(
            f"the file of {point.file} has {file.hex(' ')} at {point.name}, not the original {point.original.hex(' ')}"
        )
    number = listed(guest, point)
    return Observation(process, "" if number else None, number)
