# SPDX-License-Identifier: GPL-2.0-only
"""A BPF program at a probe point of a guest: attached, exchanged for another, detached, proved gone.

While hits are counted the program stays where it is, and a witness beside it counts them by thread. The kernel counts
the program's own runs: it must have run at every hit that the witness saw.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from orchestrator.catalog.probes import Handler, ProbeKind, probes
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes import bpf_program
from orchestrator.probes.attachment import Called, allow_optimisation, removed, wait_until_untouched, write_events
from orchestrator.probes.bpf_program import BpfEvent, Target, Witness, attach
from orchestrator.probes.events import ARGUMENTS
from orchestrator.probes.evidence import MISSED_RETURNS, Observation, check_untouched
from orchestrator.probes.place import Place, PlacedAttachment, UserPoint, place_of
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tracefs import event_number


@contextlib.contextmanager
def programs_removed(guest: Guest, kind: ProbeKind, tool: Path, place: Place) -> Iterator[None]:
    """Let programs be attached at an untouched place, with bpfprobe brought; remove all of them at the end.

    Raises EvidenceError when the original bytes are not there before, or not back at the end.
    """
    point = place.point
    check_untouched(point, place.observe(), "before attaching")
    allow_optimisation(guest, kind)
    bpf_program.bring(guest, tool)
    bpf_program.check_no_statistics(guest)
    compiled_before = bpf_program.compile_programs(guest, on=kind.program is None or kind.program.is_compiled)

    def remove() -> None:
        guest.succeed(["sh", "-c", "rm -rf /sys/fs/bpf/lab-*"])
        bpf_program.keep_statistics(guest, on=False)
        wait_until_untouched(guest, kind, point, place.observe, "after detaching the program")
        bpf_program.compile_programs(guest, on=compiled_before)

    with removed(remove):
        yield


_ENTRIES = "lab-entries"
_NAMES = ("lab-a", "lab-b")
"""Folders in turn: a program is attached before the one that it replaces is detached."""


class BpfAttachment(PlacedAttachment):
    """A program that is attached. Made by ``bpf_attached``."""

    def __init__(self, guest: Guest, kind: ProbeKind, place: Place) -> None:
        super().__init__(guest, kind, place)
        assert kind.program is not None
        self._facts = kind.program
        self._target = target_of(guest, kind, place.point)
        self._handler: Handler = "noop"
        self._turn = 0
        self._program = attach(guest, _NAMES[0], "noop", self._target)
        self._witness = Witness(guest, self._target)
        self._events: Sequence[BpfEvent] = ()
        self._entries: Mapping[int, int] = {}

    def observe(self) -> Observation:
        info = self._program.info()
        if (info.jited > 0) != self._facts.is_compiled:
            raise EvidenceError(
                f"the BPF program at {self.point.name} is {'compiled' if info.jited else 'interpreted'}, "
                f"and for {self._kind.name} it must not be"
            )
        if self._handler == "record":
            self._check_none_dropped()
        return self._place.observe()

    def handle(self, handler: Handler) -> None:
        """Exchange the program, the new one first. While hits are counted it stays, and counts them anew."""
        if self._witness.is_counting:
            if handler == "noop":
                self._bear_witness()
            elif self._handler != "noop":
                self._program.empty()
        elif handler != self._handler:
            self._exchange(handler)

    def renewal(self) -> Callable[[], None] | None:
        """The ring has room for 58,000 events, and nobody reads it meanwhile."""
        return self._program.empty if self._handler == "record" else None

    @contextlib.contextmanager
    def one_caller(self) -> Iterator[None]:
        """A witness counts by thread while the kernel counts the program's runs; of returns also the entries."""
        entries = None
        if self._facts.entries is not None:
            target = Target(probes()[self._facts.entries], *self.point.place(0))
            entries = attach(self._guest, _ENTRIES, "witness", target)
        self._witness.begin([("the BPF program", self._program)])
        yield
        self._witness.detach()
        if entries is not None:
            self._entries = entries.hits()
            entries.detach()
        if isinstance(self.point, UserPoint):
            self._exchange(self._handler)
        else:
            self.wait_until_armed()
        self._witness.end()

    def counts(self, called: Called) -> tuple[int, int | None]:
        runs, others = self._witness.counts(called)
        hits, odd = divmod(runs, self._facts.runs)
        if odd:
            raise EvidenceError(f"{runs} runs are of no whole number of hits, which have {self._facts.runs} each")
        entered = sum(self._entries.get(pid, 0) for pid in called.pids)
        if called.calls and entered > hits:
            raise EvidenceError(f"the kernel missed {entered - hits} of {entered} returns", hint=MISSED_RETURNS)
        return hits, others

    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        events = self._events
        rows = ([event.nanoseconds, event.pid, *map(hex, event.args)] for event in events)
        write_events(file, ["nanoseconds", "pid", *(f"arg{number}" for number in range(ARGUMENTS))], rows)
        for before, after in pairwise(events):
            if before.nanoseconds > after.nanoseconds and self._guest.machine.smp == 1:
                raise EvidenceError("events of the ring are out of order", detail=[str(before), str(after)])
        mine = [event for event in events if event.pid in called.pids]
        for event in mine:
            self._check(event)
        hits, _ = self.counts(called)
        if len(mine) != hits * self._facts.runs:
            raise EvidenceError(f"the ring has {len(mine)} events of the calls, and the witness saw {hits} hits")
        return hits, len(events) - len(mine)

    def _exchange(self, handler: Handler) -> None:
        self._turn = 1 - self._turn
        before = self._program
        if isinstance(self.point, UserPoint):
            # The kernel lists no uprobes, and since Linux 6.12 one stays for a jiffy behind its link (delayed_fput() of
            # fs/file_table.c). Where two are, the bytes are the same: so they must be original in between.
            before.detach()
            when = "after detaching the program"
            wait_until_untouched(self._guest, self._kind, self.point, self._place.observe, when)
            self._program = attach(self._guest, _NAMES[self._turn], handler, self._target)
        else:
            self._program = attach(self._guest, _NAMES[self._turn], handler, self._target)
            before.detach()
        self._handler = handler
        self.wait_until_armed()

    def _bear_witness(self) -> None:
        """Keep what was counted, and compare it with the program's own runs and counts."""
        seen = self._witness.look()
        if self._handler == "count":
            counted, _ = self._program.counts()
            if counted < seen:
                raise EvidenceError(f"the BPF program counted {counted} hits, and the witness beside it {seen}")
        if self._handler == "record":
            self._check_none_dropped()
            self._events = self._program.events()

    def _check_none_dropped(self) -> None:
        _, dropped = self._program.counts()
        if dropped:
            raise EvidenceError(f"the ring of the BPF program had no room for {dropped} events")

    def _check(self, event: BpfEvent) -> None:
        """Events have the point's address; a kprobe's that behind the breakpoint, an fprobe's that behind the call."""
        address = event.args[0] - (self._facts.behind or 0)
        if self._facts.behind is not None and not self.point.is_at(address):
            raise EvidenceError(f"an event is of {address:#x}, not of {self.point.name}", detail=[str(event)])


def target_of(guest: Guest, kind: ProbeKind, point: ProbePoint) -> Target:
    """What the guest's side is to attach to. Raises EvidenceError where the kernel has no such event."""
    assert kind.program is not None
    if kind.tracepoint is not None:
        by_number = kind.program.link == "tracepoint"
        return Target(kind, str(event_number(guest, kind.tracepoint)) if by_number else kind.tracepoint)
    if isinstance(point, UserPoint):
        return Target(kind, point.file, point.file_offset, point.semaphore)
    if kind.program.link == "trampoline":
        return Target(kind, point.symbol)  # it is found among the kernel's own by its type
    is_anywhere = kind.program.link == "kprobe" and not kind.at_return
    return Target(kind, *point.place(point.offset if is_anywhere else 0))


@contextlib.contextmanager
def bpf_attached(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols
) -> Iterator[BpfAttachment]:
    """Attach a program that does nothing at the point; detach whatever is there at the end. ``tool`` is bpfprobe.

    Raises EvidenceError when the kernel refuses it (with its own reason), or when the original bytes are not back at
    the end.
    """
    place = place_of(guest, kind, point, symbols)
    with programs_removed(guest, kind, tool, place):
        yield BpfAttachment(guest, kind, place)
