# SPDX-License-Identifier: GPL-2.0-only
"""BPF programs at a probe point of a guest: attached, counted, detached, proved gone.

They are the lab's, a user's object, or a bpftrace one-liner. While hits are counted, a witness program counts them by
thread and the kernel counts the runs of each program: the program must have run at every hit of the witness.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from orchestrator.catalog.probes import Handler, ProbeKind, is_recording, probes
from orchestrator.errors import (
    EvidenceError,
)
from orchestrator.guest.guest import Guest
from orchestrator.probes import attachment, bpf_program, final_form
from orchestrator.probes.bpf_program import AttachTarget, BpfEvent, attach
from orchestrator.probes.bpf_witness import Witness
from orchestrator.probes.events import ARGUMENTS
from orchestrator.probes.evidence import MISSED_RETURNS, Observation, check_untouched
from orchestrator.probes.place import Place, PlacedAttachment, place_of
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.traced_functions import BPF_TRAMPOLINE, check_trampoline
from orchestrator.probes.tracefs import event_number
from orchestrator.probes.user_point import UserPoint


@contextlib.contextmanager
def attaching_programs(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols
) -> Iterator[Place]:
    """Allow programs to be attached at an untouched place, with bpfprobe in the guest; remove them all at the end.

    Yields the place. Raises EvidenceError if the original bytes are not there before, or not restored at the end.
    """
    place = place_of(guest, kind, point, symbols)
    check_untouched(place.point, place.observe(), "before attaching")
    final_form.allow_optimisation(guest, kind)
    bpf_program.bring(guest, tool)
    bpf_program.keep_statistics(guest, on=False)
    compiled_before = bpf_program.compile_programs(guest, on=kind.program is None or kind.program.is_compiled)

    def remove() -> None:
        guest.succeed(["sh", "-c", "rm -rf /sys/fs/bpf/lab-*"])
        bpf_program.keep_statistics(guest, on=False)
        final_form.wait_until_untouched(guest, kind, place.point, place.observe, "after detaching the program")
        bpf_program.compile_programs(guest, on=compiled_before)

    with attachment.cleanup_after(remove):
        yield place


_NAMES = ("lab-a", "lab-b")
"""Folders, used alternately: a program is attached before the one that it replaces is detached."""


_MOST_STACKS = 8192  # as in images/bpf/bpfprobe.c


class BpfAttachment(PlacedAttachment):
    """The lab's BPF program, attached by ``bpf_attached``."""

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
        self._stacks: Mapping[int, Sequence[int]] = {}
        self._entries: Mapping[int, int] = {}

    def observe(self) -> Observation:
        info = self._program.info()
        if (info.jited > 0) != self._facts.is_compiled:
            raise EvidenceError(
                f"the BPF program at {self.point.name} is {'compiled' if info.jited else 'interpreted'}, "
                f"and for {self._kind.name} it must not be"
            )
        if is_recording(self._handler):
            self._check_none_dropped()
        seen = self._place.observe()
        if self._kind.mechanism != "direct" or seen.traced is None or seen.jump_target is None:
            return seen
        check_trampoline(self._guest, seen.traced, self.point.address + seen.jump_target, [info.code])
        return replace(seen, called=BPF_TRAMPOLINE)

    def set_handler(self, handler: Handler) -> None:
        """Exchange the program, the new one first. Counting again keeps the program and resets its counts."""
        if self._witness.is_counting:
            if handler == "noop":
                self._bear_witness()
            elif self._handler != "noop":
                self._program.empty()
        elif handler != self._handler:
            self._exchange(handler)

    def facts(self) -> Mapping[str, int | str]:
        return bpf_program.program_facts([self._program])

    def renewal(self) -> Callable[[], None] | None:
        """The ring has room for 58,000 events, and is not read meanwhile."""
        return self._program.empty if is_recording(self._handler) else None

    @contextlib.contextmanager
    def separate_caller(self) -> Iterator[None]:
        """A witness counts by process while the kernel counts the program's runs; for returns also the entries."""
        entries = None
        if self._facts.entries is not None:
            target = target_of(self._guest, probes()[self._facts.entries], self.point)
            entries = attach(self._guest, "lab-entries", "witness", target)
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

    def counts(self, called: attachment.Called) -> tuple[int, int | None]:
        runs, runs_of_others = self._witness.counts(called)
        hits, odd = divmod(runs, self._facts.runs)
        if odd:
            raise EvidenceError(f"{runs} runs are not a whole number of hits, which have {self._facts.runs} each")
        entered = sum(self._entries.get(pid, 0) for pid in called.pids)
        if called.calls and entered > hits:
            raise EvidenceError(f"the kernel missed {entered - hits} of {entered} returns", hint=MISSED_RETURNS)
        return hits, self._hits_of_others(runs_of_others)

    def recorded(self, called: attachment.Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        events = self._events
        rows = ([event.nanoseconds, event.pid, *map(hex, event.args)] for event in events)
        attachment.write_events(file, ["nanoseconds", "pid", *(f"arg{number}" for number in range(ARGUMENTS))], rows)
        for before, after in pairwise(events):
            if before.nanoseconds > after.nanoseconds and self._guest.machine.smp == 1:
                raise EvidenceError("events of the ring are out of order", detail=[str(before), str(after)])
        mine = [event for event in events if event.pid in called.pids]
        self._check_addresses(mine)
        if self._handler == "stack":
            self._check_stacks({event.args[-1] for event in mine})
        hits, _ = self.counts(called)
        runs = hits * self._facts.runs
        if len(mine) != runs:
            raise EvidenceError(f"the ring has {len(mine)} events of the calls, and the witness saw {runs} runs")
        return hits, self._hits_of_others(len(events) - len(mine))

    def _hits_of_others(self, runs: int) -> int:
        """Rounded up: a hit that was in progress when counting began or ended has only some of its runs counted."""
        return -(-runs // self._facts.runs)

    def _exchange(self, handler: Handler) -> None:
        self._turn = 1 - self._turn
        before = self._program
        if isinstance(self.point, UserPoint):
            # The kernel lists no uprobes, and since Linux 6.12 one outlives its link by a jiffy (delayed_fput() of
            # fs/file_table.c). The bytes are the same with one or two uprobes: so they must be original in between.
            before.detach()
            when = "after detaching the program"
            final_form.wait_until_untouched(self._guest, self._kind, self.point, self._place.observe, when)
            self._program = attach(self._guest, _NAMES[self._turn], handler, self._target)
        else:
            self._program = attach(self._guest, _NAMES[self._turn], handler, self._target)
            before.detach()
        self._handler = handler
        self.wait_until_armed()

    def _bear_witness(self) -> None:
        seen = self._witness.look()
        if self._handler in ("count", "count-shared"):
            counted, _ = self._program.counts()
            if counted < seen:
                raise EvidenceError(f"the BPF program counted {counted} runs, and the witness beside it {seen}")
        if is_recording(self._handler):
            self._check_none_dropped()
            self._events = self._program.events()
        if self._handler == "stack":
            numbers = {event.args[-1] for event in self._events}
            self._stacks = {number: self._program.stack(number) for number in numbers if number < _MOST_STACKS}

    def _check_none_dropped(self) -> None:
        _, dropped = self._program.counts()
        if dropped:
            raise EvidenceError(f"the ring of the BPF program had no room for {dropped} events")

    def _check_stacks(self, numbers: Collection[int]) -> None:
        """Each is more than the place itself, but a program's own, which begins there, may be no more than that."""
        is_users = isinstance(self.point, UserPoint)
        for number in numbers:
            if number not in self._stacks:
                raise EvidenceError(f"the kernel has not traced a stack: {number - (1 << 64)}")
            stack = self._stacks[number]
            if is_users and not self._kind.at_return and not (stack and self.point.is_at(stack[0])):
                raise EvidenceError(f"stack {number} does not begin at {self.point.name}", detail=[*map(hex, stack)])
            if not is_users and len(stack) < attachment.FEWEST_FRAMES:
                raise EvidenceError(f"stack {number} has {len(stack)} functions", detail=[*map(hex, stack)])

    def _check_addresses(self, events: Sequence[BpfEvent]) -> None:
        """One of each hit has the point's address: a kprobe's behind the breakpoint, an fprobe's behind the call."""
        behind = self._facts.behind
        if behind is None:
            return
        elsewhere = [event for event in events if not self.point.is_at(event.args[0] - behind)]
        at_point = len(events) - len(elsewhere)
        if at_point * self._facts.runs != len(events):
            raise EvidenceError(
                f"{at_point} of {len(events)} events have {self.point.name}'s address; one of each hit must have it",
                detail=[str((elsewhere or events)[0])],
            )


def target_of(guest: Guest, kind: ProbeKind, point: ProbePoint) -> AttachTarget:
    """The guest-side name of what to attach to. Raises EvidenceError if the kernel has no such event."""
    assert kind.program is not None
    if kind.tracepoint is not None:
        by_number = kind.program.link == "tracepoint"
        return AttachTarget(kind, str(event_number(guest, kind.tracepoint)) if by_number else kind.tracepoint)
    if isinstance(point, UserPoint):
        return AttachTarget(kind, point.file, point.file_offset, point.semaphore)
    if kind.program.link in ("trampoline", "functions"):
        return AttachTarget(kind, point.symbol)  # found by its type
    is_anywhere = kind.program.link == "kprobe" and not kind.at_return
    return AttachTarget(kind, *point.place(point.offset if is_anywhere else 0))


@contextlib.contextmanager
def bpf_attached(
    guest: Guest, kind: ProbeKind, tool: Path, point: ProbePoint, symbols: Symbols
) -> Iterator[BpfAttachment]:
    """Attach a program that does nothing at the point; detach all programs at the end. ``tool`` is bpfprobe.

    Raises EvidenceError if the kernel refuses it (with the kernel's reason), or if the original bytes are not restored
    at the end.
    """
    with attaching_programs(guest, kind, tool, point, symbols) as place:
        yield BpfAttachment(guest, kind, place)
