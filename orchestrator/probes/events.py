# SPDX-License-Identifier: GPL-2.0-only
"""Events written by a recording handler: read back from the guest, checked, and exported as CSV."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from pathlib import Path

from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.probes.attachment import Called, write_events
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols

ARGUMENTS = 6
"""The number of an event's arguments."""

_SYSTEM_CALLS = "sys_enter"
"""The tracepoint whose events are system calls."""
_MOST_SLOTS = 4096
"""RING_SLOTS of kmods/lib/ring.h."""

# struct ring and struct ring_event of kmods/lib/ring.h.
_HEADER = struct.Struct("<8sIIIHHQ")
_EVENT = struct.Struct(f"<QII{ARGUMENTS}Q")
_LARGEST = _HEADER.size + _MOST_SLOTS * _EVENT.size


class EventKind(IntEnum):
    """What was hit, by the numbers of ``enum lab_event`` in ``kmods/lib/ring.h``.

    STANDARD is for the recorder of standard kernel events, whatever its mechanism; no kind of probe records it.
    """

    KPROBE = 1
    JPROBE = 2
    DJPROBE = 3
    KRETPROBE = 4
    SYSCALL = 5
    FTRACE = 6
    STANDARD = 7
    TRACEPOINT = 8
    FPROBE = 9
    STACK = 10

    @classmethod
    def of(cls, kind: ProbeKind) -> EventKind:
        """The kind of event that a kind's module records."""
        return cls.TRACEPOINT if kind.tracepoint not in (None, _SYSTEM_CALLS) else cls[(kind.records or "").upper()]


_INTERRUPTIBLE = frozenset(
    {EventKind.DJPROBE, EventKind.KRETPROBE, EventKind.FTRACE, EventKind.FPROBE, EventKind.STACK}
)
"""Kinds whose handlers run with interrupts on. A kprobe's runs with them off, or the kernel skips what an interrupt
hits meanwhile; and no interrupt makes a system call."""
_FEWEST_FRAMES = 3
"""Functions of the kernel's stack: a handler, a system call's function, and the entry into the kernel."""
_CONTEXTS = 4
"""A task, a softirq, an interrupt and an NMI: each can interrupt the handler of the one before."""
_INTERRUPTED = 100
"""One in so many events, plus one, may have been interrupted between reserving its slot and reading the TSC: these are
a few of the hundreds of instructions of a hit and a call."""


@dataclass(frozen=True)
class Event:
    """One hit. ``kmods/lib/ring.h`` describes ``args`` by kind; ``pid`` is the thread's ID."""

    cpu: int
    tsc: int
    event: EventKind
    pid: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Ring:
    """One CPU's recording: the remaining events, oldest first, the number ever written, and its register size."""

    events: tuple[Event, ...]
    written: int
    word_size: int


@dataclass(frozen=True)
class Events:
    """A module's recording since its handler was chosen, one ring per CPU."""

    rings: tuple[Ring, ...]

    def __iter__(self) -> Iterator[Event]:
        return (event for ring in self.rings for event in ring.events)

    @property
    def word_size(self) -> int:
        sizes = {ring.word_size for ring in self.rings}
        if len(sizes) != 1:
            raise EvidenceError(f"the recorded events are of registers of {sorted(sizes)} bytes")
        return sizes.pop()

    @property
    def written(self) -> int:
        return sum(ring.written for ring in self.rings)

    @property
    def lost(self) -> int:
        return sum(ring.written - len(ring.events) for ring in self.rings)


def read_events(guest: Guest, module_name: str) -> Events:
    """The recording of a loaded module; final once its handler was replaced.

    Raises EvidenceError for anything but whole rings, GuestError if the module never recorded.
    """
    possible = kernel_value(guest, "/sys/devices/system/cpu/possible")
    match = re.fullmatch(r"0(?:-(\d{1,4}))?", possible)
    cpus = int(match[1] or 0) + 1 if match else 0
    if not 0 < cpus <= guest.machine.smp:
        raise EvidenceError(f"the guest's possible CPUs are {possible[:40]!r}, and its machine has {guest.machine.smp}")
    paths = [f"/sys/kernel/debug/{module_name}/cpu{number}" for number in range(cpus)]
    return Events(tuple(parse_ring(guest.get(path, largest=_LARGEST), cpu) for cpu, path in enumerate(paths)))


def parse_ring(content: bytes, cpu: int) -> Ring:
    """Parse a CPU's ring from the module's bytes. Raises EvidenceError if it is not complete."""
    if len(content) < _HEADER.size:
        raise _not_a_ring(cpu, f"it has {len(content)} bytes")
    magic, version, number, slots, event_size, word_size, written = _HEADER.unpack_from(content)
    if (magic, version, number, event_size) != (b"labring\0", 1, cpu, _EVENT.size) or word_size not in (4, 8):
        raise _not_a_ring(cpu, f"it begins with {content[: _HEADER.size].hex(' ')}")
    if not 0 < slots <= _MOST_SLOTS or slots & (slots - 1) or len(content) != _HEADER.size + slots * _EVENT.size:
        raise _not_a_ring(cpu, f"it says that it has {slots} slots, and has {len(content)} bytes")
    oldest = written % slots if written > slots else 0
    left = min(written, slots)
    if any(content[_HEADER.size + left * _EVENT.size :]):
        raise _not_a_ring(cpu, f"it has more events than the {written} that it says were written")
    slots_in_use = list(_EVENT.iter_unpack(content[_HEADER.size : _HEADER.size + left * _EVENT.size]))
    events = []
    for tsc, kind, pid, *args in slots_in_use[oldest:] + slots_in_use[:oldest]:
        if kind not in EventKind.__members__.values():
            raise _not_a_ring(cpu, f"it has an event of the unknown kind {kind}")
        events.append(Event(cpu, tsc, EventKind(kind), pid, tuple(args)))
    return Ring(tuple(events), written, word_size)


def _not_a_ring(cpu: int, why: str) -> EvidenceError:
    return EvidenceError(f"what the module recorded on CPU {cpu} cannot be read: {why}")


def write_csv(events: Events, path: Path | None) -> None:
    """Write all remaining events, CPU by CPU, oldest first; arguments in hexadecimal."""
    rows = ([event.cpu, event.tsc, event.event.name.lower(), event.pid, *map(hex, event.args)] for event in events)
    write_events(path, ["cpu", "tsc", "event", "pid", *(f"arg{number}" for number in range(ARGUMENTS))], rows)


def check_events(
    events: Events, kind: ProbeKind, called: Called, point: ProbePoint, symbols: Symbols, *, stacks: bool = False
) -> int:
    """Check each event of the processes that made the calls, and return their number.

    Raises EvidenceError with what is wrong. For a hook at every system call only the events of these calls count, as
    the program makes others too. Events of a user's module are not checked. ``stacks``: each event is a stack's.
    """
    if kind.file is not None:
        return sum(event.pid in called.pids for event in events)
    plain = EventKind.of(kind)
    expected = EventKind.STACK if stacks else plain
    if events.lost:
        raise EvidenceError(f"{events.lost} of {events.written} events were overwritten before they were read")
    for event in events:
        if event.event is not expected:
            raise _wrong(event, f"an event is of the kind {event.event.name}, not {expected.name}")
    for ring in events.rings:
        check_order(ring)
    calls_events = [event for event in events if event.pid in called.pids]
    if plain is EventKind.SYSCALL:
        calls_events = [event for event in calls_events if event.args[0] == called.number]
    word_size = events.word_size
    # A tracepoint's arguments are its own.
    for event in calls_events if expected not in {EventKind.TRACEPOINT, EventKind.STACK} else ():
        _check_arguments(event, word_size, called, point, symbols)
    for event in calls_events if stacks else ():
        _check_stack(event, plain, point, symbols)
    if expected in {EventKind.KPROBE, EventKind.DJPROBE, EventKind.FPROBE} and point.is_called_directly:
        _check_sameness(calls_events, word_size)
    return len(calls_events)


def check_order(ring: Ring) -> None:
    """Raise EvidenceError unless a CPU's events can have been written in this order.

    A handler reserves a slot, then reads the TSC (record_event() of ``kmods/lib/ring.h``). TSCs rise from slot to slot,
    except if an interrupt comes in between and its handlers record too: their slots are later and their TSCs lower.
    They are complete before the interrupted handler continues, and preemption is off. So they follow it without a gap,
    belong to the same task, and are nested no deeper than contexts. An event with a lower TSC than a complete one is
    wrong.
    """
    open_events: list[Event] = []
    complete: Event | None = None
    interrupted = set[int]()
    for event in ring.events:
        while open_events and open_events[-1].tsc < event.tsc:
            complete = open_events.pop()
        outer = open_events[-1] if open_events else None
        wrong = complete if complete is not None and event.tsc <= complete.tsc else None
        if outer is not None and wrong is None:
            nested = event.event in _INTERRUPTIBLE and event.pid == outer.pid and event.tsc < outer.tsc
            wrong = None if nested and len(open_events) < _CONTEXTS else outer
            interrupted.add(outer.tsc)
        if wrong is not None:
            raise _wrong(event, f"an event follows one of TSC {wrong.tsc} on its CPU: they are out of order")
        open_events.append(event)
    if len(interrupted) > 1 + len(ring.events) // _INTERRUPTED:
        raise EvidenceError(
            f"{len(interrupted)} of {len(ring.events)} events on CPU {ring.events[0].cpu} have a higher TSC than the "
            "next: they are out of order",
            hint="an interrupt may come between an event's slot and its TSC, but not so often",
        )


def _check_arguments(event: Event, word_size: int, called: Called, point: ProbePoint, symbols: Symbols) -> None:
    """Compare with the known values; ``kmods/lib/ring.h`` describes the arguments of each kind."""
    passed = called.arguments[:2]
    known: tuple[int, ...] = (point.address,)
    return_address: int | None = None
    match event.event:
        case EventKind.KPROBE | EventKind.DJPROBE | EventKind.FPROBE:
            # Except at the entry, the stack's top may hold anything.
            return_address = (3 if word_size == 4 else 5) if point.is_entry else None
        case EventKind.JPROBE if point.is_called_directly:
            known = (point.address, *passed, 0, 0, 0)
        case EventKind.KRETPROBE:
            return_address = 2
            if point.is_called_directly and called.result == 0:  # other results may differ from call to call
                known = (point.address, 0)
        case EventKind.SYSCALL:
            assert called.number is not None
            known = (called.number, *passed)
        case EventKind.FTRACE:
            return_address = 1
    for number, (argument, right) in enumerate(zip(event.args, known, strict=False)):
        if argument != right:
            raise _wrong(event, f"argument {number} of an event is {argument:#x}, not {right:#x}")
    if return_address is not None and not point.is_callers(event.args[return_address], symbols):
        caller = event.args[return_address]
        raise _wrong(event, f"the probed function was called from {caller:#x}, which is not in the kernel's text")


def _check_stack(event: Event, plain: EventKind, point: ProbePoint, symbols: Symbols) -> None:
    """A stack is of the place, and ends where the kernel is entered, unless the unwinder has lost its way."""
    place, depth, outermost, *_ = event.args
    if plain not in {EventKind.SYSCALL, EventKind.TRACEPOINT} and place != point.address:
        raise _wrong(event, f"a stack is of {place:#x}, not of {point.address:#x}")
    if depth < _FEWEST_FRAMES or not symbols.in_entry(outermost):
        end = symbols.at(outermost)
        raise _wrong(event, f"a stack of {depth} functions ends at {end}, not at the entry into the kernel")


def _check_sameness(events: Sequence[Event], word_size: int) -> None:
    """Every call takes the same path, so registers and stack are the same in every event.

    On i386 the system call's function has its parameter, the address of the caller's registers, on the stack. On x86_64
    it is in a register that is not recorded, and the word above the return address is arbitrary.
    """
    compared = range(ARGUMENTS) if word_size == 4 else (0, 1, 2, 3, 5)
    for before, event in pairwise(events):
        for number in compared:
            if event.args[number] != before.args[number]:
                values = f"{event.args[number]:#x}, and {before.args[number]:#x} in the one before"
                raise _wrong(event, f"argument {number} of an event is {values}")


def _wrong(event: Event, what: str) -> EvidenceError:
    return EvidenceError(what, detail=[str(event)])
