# SPDX-License-Identifier: GPL-2.0-only
"""Where the kernel puts a requested probe: at a function, at a tracepoint, or in a program."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from orchestrator.arch import CALL, JMP, Arch
from orchestrator.artifacts.function_entry import entry_places, tracer_place
from orchestrator.catalog.data import did_you_mean
from orchestrator.catalog.probes import KernelChange, KernelFeature, ProbeKind
from orchestrator.errors import CommandFailed, EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Attachment, wait_until_armed
from orchestrator.probes.bpf_program import pinned_links
from orchestrator.probes.evidence import Observation, check_armed, check_called, followed, observe
from orchestrator.probes.point import SHOWN_BYTES, ProbePoint, find_entry, find_static_branch
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tracefs import TRACEFS, Traced

# A tracepoint of a guest's kernel, by name: its static branch, its key, and the functions that a hit calls.
#
# All of it is read from outside, from ``struct tracepoint`` (include/linux/tracepoint-defs.h), without a module.

_ITERATOR, _STUB, _CALL = "__traceiter_", "__probestub_", "__SCT__tp_func_"
"""Functions of every tracepoint: the stub exists since Linux 6.4, the static call on architectures that have one."""
_NAMES, _STUBS = re.compile(_ITERATOR + r"\w{1,100}"), re.compile(_STUB + r"\w{1,100}")
_ITERATOR_FIELD = 5
"""Words before ``iterator``: name, key (two), static_call_key, static_call_tramp."""
_REGISTERING, _REGISTERS = "sys_enter", "syscall_regfunc"
"""A tracepoint of every kernel whose ``regfunc`` is known."""
_KEY_FIELD = 1
_TYPE_BITS = 3
"""Low bits of a key's second word, which are not part of the address of its first jump_entry."""
_MOST_FUNCTIONS = 8
_LARGEST_TEXT = 32 << 20
"""Bytes from the kernel's text to its init code; Debian's for i386 has 9 MB."""


@dataclass(frozen=True)
class Tracepoint:
    """A tracepoint: the addresses of its struct, its functions and its static call (None if it has none).

    ``branch`` is its first static branch. Several functions may contain the tracepoint: their branches are switched
    together.
    """

    name: str
    address: int
    functions_at: int
    static_call: int | None
    branch: ProbePoint

    def observe(self, guest: Guest, symbols: Symbols) -> Observation:
        """The branch's bytes, whether the key is enabled, and the function or functions that a hit calls (``called``).

        Raises EvidenceError if the static call disagrees with the list of functions.
        """
        live = guest.read_memory(self.branch.address, len(self.branch.original))
        word = _word_of(self.address)
        (enabled,) = struct.unpack("<i", guest.read_memory(self.address + _KEY_FIELD * word.size, 4))
        # Its array ends with a null (struct tracepoint_func: function, data, priority).
        array = _number(guest, self.functions_at, word)
        functions: list[int] = []
        while array and (function := _number(guest, array + 3 * word.size * len(functions), word)):
            functions.append(function)
            if len(functions) > _MOST_FUNCTIONS:
                raise EvidenceError(f"the tracepoint {self.name} calls more than {_MOST_FUNCTIONS} functions")
        called = ", ".join(symbols.at(function) for function in functions)
        if self.static_call is not None and functions:
            self._check_call(guest, symbols, functions)
        return Observation(live, "[ENABLED]" if enabled > 0 else None, called=called or None)

    def _check_call(self, guest: Guest, symbols: Symbols, functions: Sequence[int]) -> None:
        """A single function is called directly; several are called through the iterator (tracepoint_update_call())."""
        assert self.static_call is not None
        code = guest.read_memory(self.static_call, 5)
        target = self.static_call + len(code) + int.from_bytes(code[1:], "little", signed=True)
        expected = functions[0] if len(functions) == 1 else symbols.address(_ITERATOR + self.name)
        if code[0] != JMP or target != expected:
            raise EvidenceError(
                f"the static call of the tracepoint {self.name} is {code.hex(' ')} at {self.static_call:#x}, "
                f"and does not lead to {symbols.at(expected)}"
            )


def find_tracepoint(guest: Guest, symbols: Symbols, name: str) -> Tracepoint:
    """A tracepoint of the kernel that is off. Raises EvidenceError if there is none, or if it is on."""
    iterators = symbols.functions_like(_NAMES)
    iterator = iterators.get(_ITERATOR + name)
    if iterator is None:
        hint = did_you_mean(name, [function.removeprefix(_ITERATOR) for function in iterators])
        raise EvidenceError(f"the guest's kernel has no tracepoint {name}", hint=hint)
    word = _word_of(iterator)
    address = _struct_at(guest, symbols, name, iterator)
    entries = _number(guest, address + (_KEY_FIELD + 1) * word.size, word) & ~_TYPE_BITS
    if not entries:
        raise EvidenceError(f"no code of the guest's kernel has the tracepoint {name}")
    # struct jump_entry begins with the distance from itself to the branch.
    (distance,) = struct.unpack("<i", guest.read_memory(entries, 4))
    return Tracepoint(
        name,
        address,
        address + _functions_field(guest, symbols, word, iterators) * word.size,
        symbols.address(_CALL + name) if symbols.functions(_CALL + name) else None,
        find_static_branch(guest, entries + distance, name),
    )


def _functions_field(guest: Guest, symbols: Symbols, word: struct.Struct, iterators: Mapping[str, int]) -> int:
    """Words before ``funcs``: those before the iterator, the iterator, and the stub if there is one.

    Up to Linux 6.13 regfunc and unregfunc come in between; later kernels have them in a struct of their own (``ext``).
    """
    iterator = iterators.get(_ITERATOR + _REGISTERING)
    stubs = 1 if symbols.functions_like(_STUBS) else 0
    behind = _ITERATOR_FIELD + 1 + stubs
    if iterator is not None and symbols.functions(_REGISTERS):
        registering = _struct_at(guest, symbols, _REGISTERING, iterator)
        if _number(guest, registering + behind * word.size, word) != symbols.address(_REGISTERS):
            return behind
    return behind + 2


def _struct_at(guest: Guest, symbols: Symbols, name: str, iterator: int) -> int:
    """The address of the struct; found by its content, as kernels without CONFIG_KALLSYMS_ALL list no data."""
    listed, word = symbols.anywhere(f"__tracepoint_{name}"), _word_of(iterator)
    if listed:
        return listed
    start, end = symbols.anywhere("_etext"), symbols.anywhere("_sinittext")
    if start is None or end is None or not 0 < end - start <= _LARGEST_TEXT:
        raise EvidenceError("the guest's kernel does not list where its data is (_etext, _sinittext)")
    memory = guest.read_memory(start, end - start)
    terminated = name.encode() + b"\0"
    for match in re.finditer(re.escape(word.pack(iterator)), memory):
        struct_at = match.start() - _ITERATOR_FIELD * word.size
        if struct_at < 0:
            continue
        (text,) = word.unpack_from(memory, struct_at)
        if memory[text - start : text - start + len(terminated)] == terminated:
            return start + struct_at
    raise EvidenceError(f"the tracepoint {name} is nowhere in the data of the guest's kernel")


def _word_of(address: int) -> struct.Struct:
    return struct.Struct("<Q" if address >> 32 else "<I")


def _number(guest: Guest, address: int, word: struct.Struct) -> int:
    (number,) = word.unpack(guest.read_memory(address, word.size))
    return int(number)


# A place in the program that makes the calls or in its library, as seen in a newly started process.
#
# The process is started like that of the calls, and ended before it executes an instruction of the program, or when the
# loader has mapped the library. Its bytes are compared with the file's, which a uprobe leaves alone: it changes a page
# of each process.

EVENTS = f"{TRACEFS}/uprobe_events"

_PAGE = 1 << 12
_DEFINED = re.compile(r"^[pr]:\S+ (/.*):0x0*([0-9a-f]{1,16})(?:\(0x[0-9a-f]+\))?(?: \w+=.*)?$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class UserPoint(ProbePoint):
    """A probe point in a program at a path in the guest; ``file_offset`` is in bytes.

    ``semaphore`` is the file offset of the counter that the kernel keeps of a static point's probes, or 0. A point in a
    ``library`` (a path too) has its address relative to the mapping. ``label`` is the file's name in experiments.
    """

    program: str
    file_offset: int
    semaphore: int = 0
    library: str | None = None
    label: str = "program"

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
        said = guest.succeed(["peek", *place, *numbers, point.program]).text
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


@dataclass(frozen=True)
class Place:
    """A place to probe. ``point`` has its original bytes.

    ``observe`` reads all sources of evidence there. ``check_called(seen, when)`` raises EvidenceError unless a hit
    leads to the probe, and to it alone.
    """

    point: ProbePoint
    observe: Callable[[], Observation]
    check_called: Callable[[Observation, str], None]


class PlacedAttachment(Attachment):
    """A probe that the kernel itself puts at a place."""

    armed_when = "after attaching"

    def __init__(self, guest: Guest, kind: ProbeKind, place: Place) -> None:
        self._guest, self._kind, self._place = guest, kind, place
        self.point = place.point

    def wait_until_armed(self) -> Observation:
        def check(seen: Observation) -> None:
            self._place.check_called(seen, self.armed_when)

        return wait_until_armed(self._guest, self._kind, self.point, self.observe, self.armed_when, check)


def place_of(guest: Guest, kind: ProbeKind, point: ProbePoint, symbols: Symbols) -> Place:
    """The place of a kind: the ``point``, or its tracepoint. Raises EvidenceError if it does not exist."""
    if isinstance(point, UserPoint):
        # Observed in a process started for that: the kernel puts a uprobe into each that maps the file. It lists an
        # event's uprobes in tracefs. A BPF program's uprobe lives as long as its pinned link.
        listed = events_at if kind.program is None else lambda guest, _: pinned_links(guest)

        def check_number(seen: Observation, when: str) -> None:
            # A user's programs may be anywhere.
            if seen.probes != 1 and kind.mechanism != "own":
                raise EvidenceError(f"{when}, the kernel has {seen.probes} uprobes at {point.name}, not one")

        return Place(point, partial(observe_program, guest, point, listed), check_number)
    if kind.tracepoint is not None:
        return _tracepoint_place(guest, kind, tracepoint_of_event(kind.tracepoint), symbols)
    known: dict[tuple[bytes, Traced], str] = {}

    def check(seen: Observation, when: str) -> None:
        if kind.is_traced:
            check_called(kind, point, seen, "", when, symbols)

    return Place(point, lambda: followed(guest, symbols, kind, point, observe(guest, point, kind.site), known), check)


def _tracepoint_place(guest: Guest, kind: ProbeKind, name: str, symbols: Symbols) -> Place:
    tracepoint, called = find_tracepoint(guest, symbols, name), re.compile(kind.calls)
    check_stub = _stub_check(guest, kind, name, symbols) if kind.fprobe else None

    def check(seen: Observation, when: str) -> None:
        if not called.fullmatch(seen.called or ""):
            calls = seen.called or "nothing"
            raise EvidenceError(f"{when}, the tracepoint {name} calls {calls}, not one function {called.pattern}")
        if check_stub is not None:
            check_stub(when)

    return Place(tracepoint.branch, lambda: tracepoint.observe(guest, symbols), check)


def _stub_check(guest: Guest, kind: ProbeKind, name: str, symbols: Symbols) -> Callable[[str], None]:
    """A check that the function tracer calls an fprobe at the stub, which the tracepoint calls for it."""
    stub = _STUB + name
    offset = tracer_place(max(entry_places(guest.read_memory(symbols.address(stub), SHOWN_BYTES))))
    traced = kind.model_copy(update={"tracepoint": None, "site": "ftrace", "mechanism": "ftrace"})
    place = place_of(guest, traced, find_entry(guest, symbols, stub, offset), symbols)

    def check(when: str) -> None:
        seen = place.observe()
        check_armed(traced, place.point, seen, when)
        place.check_called(seen, when)

    return check


def tracepoint_of_event(name: str) -> str:
    """The tracepoint of an event ``SYSTEM.NAME`` or of a plain name: system calls share two tracepoints."""
    call = re.fullmatch(r"syscalls\.(sys_(?:enter|exit))_\w+", name)
    return call[1] if call else name.rpartition(".")[2]
