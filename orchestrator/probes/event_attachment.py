# SPDX-License-Identifier: GPL-2.0-only
"""A tracefs event at a probe point, in the kernel or in a program: enabled, switched, counted, removed.

It is made for a kprobe, a uprobe, an fprobe, a tracepoint or another event, or is the kernel's own at a tracepoint.

``noop``: the event is enabled without output, as the buffer is off. ``count``: a histogram by thread, with the event
soft-enabled. ``record``: the event is written to the buffer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from orchestrator.catalog.probes import EVENT_FIELD, Handler, ProbeKind, is_recording
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes import traced_functions, tracefs
from orchestrator.probes.attachment import FEWEST_FRAMES, Called, cleanup_after, write_events
from orchestrator.probes.evidence import MISSED_RETURNS, Observation, check_untouched
from orchestrator.probes.final_form import allow_optimisation, wait_until_untouched
from orchestrator.probes.place import Place, PlacedAttachment, place_of
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.user_point import UserPoint

_STATES: dict[Handler, str] = {"noop": "1", "count": "0*", "record": "1", "stack": "1"}
_ADDRESS = r"<0*([0-9a-f]{1,16})>"
_NUMBER, _TEXT = r"(?:0x[0-9a-f]+|-?\d+)", r'"[^"]*"'


class EventAttachment(PlacedAttachment):
    """An enabled event, made by ``event_attached``."""

    armed_when = "after enabling"

    def __init__(self, guest: Guest, kind: ProbeKind, event: tracefs.TraceEvent, place: Place) -> None:
        super().__init__(guest, kind, place)
        self._event = event
        self._handler: Handler = "noop"
        self._has_stacks = False
        self._counted: Mapping[int, int] = {}

    def observe(self) -> Observation:
        state = self._event.state()
        if state != _STATES[self._handler]:
            raise EvidenceError(
                f"the kernel shows the event at {self.point.name} as {state[:40]!r}, not {_STATES[self._handler]!r}",
                hint="an event that is only enabled softly records nothing" if state == "0*" else "",
            )
        return self._place.observe()

    def set_handler(self, handler: Handler) -> None:
        if self._handler == "count":
            self._event.switch(on=True)
            self._counted = self._event.counts()
            self._event.count(on=False)
        elif self._handler != "noop":
            self._event.record(on=False)
        if handler == "count":
            self._event.count(on=True)
            self._event.switch(on=False)
        elif handler != "noop":
            self._has_stacks = handler == "stack"
            self._event.trace_stacks(on=self._has_stacks, user=self._kind.site == "program")
            self._event.empty()
            self._event.record(on=True)
        self._handler = handler

    def renewal(self) -> Callable[[], None] | None:
        """The event that starts a page of the buffer costs more (some 7 instructions of 20 bytes each)."""
        return self._event.empty if is_recording(self._handler) else None

    def counts(self, called: Called) -> tuple[int, int | None]:
        counts = self._counted
        self._check_none_missed()
        hits = sum(counts.get(pid, 0) for pid in called.pids)
        return hits, sum(counts.values()) - hits

    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        self._check_none_missed()
        is_users = self._kind.site == "program"
        events = self._event.recorded_with_stacks(user=is_users) if self._has_stacks else self._event.recorded()
        rows = ([event.cpu, event.number, event.pid, event.said, *event.stack] for event in events)
        write_events(file, ["cpu", "number", "pid", "event", *(["stack"] if self._has_stacks else [])], rows)
        for before, after in pairwise(events):
            if before.cpu == after.cpu and before.number >= after.number:
                raise EvidenceError("events of a CPU are out of order", detail=[str(before), str(after)])
        for event in events:
            self._check(self._without_values(event), symbols)
            if self._has_stacks and event.pid in called.pids:
                frames = [int(address, 16) for frame in event.stack for address in re.findall(_ADDRESS, frame)]
                self._check_stack(event, frames, symbols)
        hits = sum(event.pid in called.pids for event in events)
        return hits, len(events) - hits

    def _without_values(self, event: tracefs.TracedEvent) -> tracefs.TracedEvent:
        """The event without the values that it has fetched. Raises EvidenceError unless it has exactly those."""
        names = [value.partition("=")[0] for value in self._kind.fetched]
        forms = [f" {name}={_TEXT if name == 'text' else _NUMBER}" for name in names]
        values = re.search("".join(forms) + "$", event.said)
        if values is None:
            raise EvidenceError(f"an event has not fetched {', '.join(names)}", detail=[str(event)])
        return event._replace(said=event.said[: values.start()])

    def _check(self, event: tracefs.TracedEvent, symbols: Symbols) -> None:
        if self._kind.tracepoint is not None:
            if not event.said.startswith(_words_of(self._kind)):
                raise EvidenceError(f"an event is not of {self._kind.tracepoint}", detail=[str(event)])
            return
        addresses = [int(address, 16) for address in re.findall(_ADDRESS, event.said)]
        if self._kind.at_return:
            function = self.point.address - self.point.offset
            is_return = len(addresses) == 2 and self.point.is_callers(addresses[0], symbols)
            # With an endbr, newer kernels name the function by the tracer's place after it: "<- vfs_read <...794>".
            right = is_return and addresses[1] in (function, self.point.address)
        else:
            right = addresses == [self.point.address]
        if not (event.said.startswith("probe: (") and event.said.endswith(")") and right):
            raise EvidenceError(f"an event is not of {self.point.name}", detail=[str(event)])

    def _check_stack(self, event: tracefs.TracedEvent, frames: Sequence[int], symbols: Symbols) -> None:
        """It ends where the kernel is entered. A kprobe's begins at the point, an fprobe's may begin in its handler."""
        first = frames[:1] if self._kind.event == "kprobe" else frames
        is_there = any(0 <= frame - self.point.address <= traced_functions.CALL_BYTES for frame in first)
        begins = self._kind.at_return or self._kind.tracepoint is not None or is_there
        if not begins or len(frames) < FEWEST_FRAMES or not symbols.in_entry(frames[-1]):
            raise EvidenceError(f"a stack is not from {self.point.name} to the kernel's entry", detail=[str(event)])

    def _check_none_missed(self) -> None:
        """Tracepoints skip nothing, as their probes may be re-entered; what fprobes miss the kernel does not show."""
        if self._kind.event != "kprobe":
            return
        _, number = tracefs.profiled(self._guest, "kprobe")
        if number:
            hint = MISSED_RETURNS if self._kind.at_return else ""
            raise EvidenceError(f"the kernel skipped the event {number} times", hint=hint)


def _words_of(kind: ProbeKind) -> tuple[str, ...]:
    """The start of the text of an event at a tracepoint; for a system call: with its arguments, or its result.

    ``sys_read(fd: 0, buf: 0, count: 0)``, ``sys_read -> 0x0`` (print_syscall_enter() of kernel/trace/trace_syscalls.c).
    """
    assert kind.tracepoint is not None
    if kind.event == "tprobe":
        return (f"probe: (__probestub_{kind.tracepoint}+0x",)
    if kind.event == "eprobe":
        return (f"probe: ({kind.tracepoint})",)
    system, _, name = kind.tracepoint.partition(".")
    if system != "syscalls":
        return (f"{name}: ",)
    call = re.sub(r"^sys_(enter|exit)_", "sys_", name)
    return (f"{call}(", f"{call} -> ")


def definition_of(kind: ProbeKind, point: ProbePoint) -> tracefs.Definition:
    """The definition of a kind's event at a point; a kernel function's return can only be probed at its entry."""
    assert kind.event is not None
    fetched = tuple(kind.fetched)
    if kind.tracepoint is not None:
        return tracefs.Definition("dynamic", kind.event[0], kind.tracepoint.replace(".", "/"), fetched)
    if kind.event == "fprobe":
        return tracefs.Definition("dynamic", "f", point.symbol + ("%return" if kind.at_return else ""), fetched)
    if isinstance(point, UserPoint):
        counter = f"({point.semaphore:#x})" if point.semaphore else ""
        place = f"{point.file}:{point.file_offset:#x}{counter}"
    else:
        symbol, offset = point.place(0 if kind.at_return else point.offset)
        place = f"{symbol}+{offset}" if offset else symbol
    return tracefs.Definition(kind.event, "r" if kind.at_return else "p", place, fetched)


def check_name(kind: ProbeKind, point: ProbePoint) -> None:
    """Raise UnsupportedError where a name, which the function tracer goes by, is of other functions as well."""
    if kind.site == "ftrace" and point.shared_with:
        modules = " and ".join(point.shared_with)
        raise UnsupportedError(f"{kind.name} is at each function of a name, and {modules} has a {point.symbol}, too")


@contextlib.contextmanager
def event_attached(guest: Guest, kind: ProbeKind, point: ProbePoint, symbols: Symbols) -> Iterator[EventAttachment]:
    """Make an event at the point, or take the kernel's own, and enable it; disable and remove it at the end.

    Raises EvidenceError if the kernel refuses it (with the kernel's reason), or if the original bytes are not restored
    at the end. A program's bytes are those of a process started afterwards. Raises UnsupportedError for values that the
    kernel does not fetch, and a function whose name is not unique where the kernel goes by the name.
    """
    check_name(kind, point)
    place, name = place_of(guest, kind, point, symbols), kind.tracepoint or ""
    definition: tracefs.Definition | None = None

    def remove() -> None:
        tracefs.remove(guest, definition)
        wait_until_untouched(guest, kind, place.point, place.observe, "after removing the event")

    check_untouched(place.point, place.observe(), "before enabling")
    if kind.site != "program":
        allow_optimisation(guest, kind)
    tracefs.make_instance(guest)
    with cleanup_after(remove):
        if kind.event == "trace":
            event = tracefs.TraceEvent(guest, tracefs.known_event(guest, name))
        else:
            definition = definition_of(kind, place.point)
            if EVENT_FIELD in "".join(definition.fetched):
                field = tracefs.number_field(guest, name)
                if field is None:
                    raise UnsupportedError(f"the event {name} has no field that is a number")
                fetched = tuple(value.replace(EVENT_FIELD, f"${field}") for value in definition.fetched)
                definition = replace(definition, fetched=fetched)
            event = tracefs.define(guest, definition)
        event.switch(on=True)
        yield (UserEventAttachment if kind.site == "program" else EventAttachment)(guest, kind, event, place)


_AT_ENTRY = re.compile(r"probe: \(0x([0-9a-f]{1,16})\)")


_AT_RETURN = re.compile(r"probe: \(0x[0-9a-f]{1,16} <- 0x([0-9a-f]{1,16})\)")


class UserEventAttachment(EventAttachment):
    """An enabled uprobe event, made by ``event_attached``."""

    _before = _hits = 0

    def set_handler(self, handler: Handler) -> None:
        (hits,) = tracefs.profiled(self._guest, "uprobe")
        self._hits, self._before = hits - self._before, hits
        super().set_handler(handler)

    def counts(self, called: Called) -> tuple[int, int | None]:
        hits, hits_of_others = super().counts(called)
        self._check_all(hits + (hits_of_others or 0), "the histogram")
        return hits, hits_of_others

    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        hits, hits_of_others = super().recorded(called, symbols, file)
        self._check_all(hits + hits_of_others, "the buffer")
        return hits, hits_of_others

    def _check_all(self, number: int, where: str) -> None:
        if number != self._hits:
            raise EvidenceError(f"the kernel has counted {self._hits} hits of the uprobe, and {where} has {number}")

    def _check(self, event: tracefs.TracedEvent, symbols: Symbols) -> None:
        said = (_AT_RETURN if self._kind.at_return else _AT_ENTRY).fullmatch(event.said)
        if said is None or not self.point.is_at(int(said[1], 16)):
            raise EvidenceError(f"an event is not of {self.point.name}", detail=[str(event)])

    def _check_stack(self, event: tracefs.TracedEvent, frames: Sequence[int], symbols: Symbols) -> None:
        if not frames or not (self._kind.at_return or self.point.is_at(frames[0])):
            raise EvidenceError(f"a stack of the program does not begin at {self.point.name}", detail=[str(event)])

    def _check_none_missed(self) -> None:
        """The kernel counts no missed hits of uprobes; _check_all compares the counted ones."""
