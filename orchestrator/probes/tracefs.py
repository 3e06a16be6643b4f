# SPDX-License-Identifier: GPL-2.0-only
"""A guest's tracefs: events made as perf probe and trace-cmd make them.

The lab uses its own instance of tracefs (``instances/lab``), with its own buffer, clock and switches. Removing the
instance disables all its events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from orchestrator.catalog.data import did_you_mean
from orchestrator.errors import CommandFailed, EvidenceError, PlaceRefused, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value, whole_number

TRACEFS = "/sys/kernel/tracing"
INSTANCE = f"{TRACEFS}/instances/lab"

_NAME = "probe"
_EVENT = f"lab/{_NAME}"
_HISTOGRAM = "hist:keys=common_pid:size=4096"

CLOCK = "counter"
"""The cost of other clocks depends on the time: some instructions of 5000 events on i386 (x86-tsc, local), and with
local, which costs 30 more per event, also on x86_64."""
BUFFER_KB = "1024"
"""The buffer of each CPU. The 1000 recorded calls of a counting pass take 20 KiB."""
_PROFILE_MAX = 1 << 16
_EVENTS_MAX = 1 << 20
"""Bytes; a Debian kernel lists 1,900 events in 60 KB."""

_NUMBER_FIELD = re.compile(r"^\tfield:[^;\[]{1,100}\b(?!common_)(\w{1,100});\toffset:\d+;\tsize:[1248];", re.MULTILINE)
"""``field:long id; offset:8; size:8; signed:1;``: no array, and no text elsewhere (``__data_loc char[]``)."""
_COUNTED = re.compile(r"^\{ common_pid: +(\d{1,10}) \} hitcount: +(\d{1,20})$", re.MULTILINE)
_TOTALS = re.compile(r"^Totals:\n    Hits: (\d{1,20})\n    Entries: (\d{1,20})\n    Dropped: (\d{1,20})$", re.MULTILINE)
_PROFILED = {
    "kprobe": re.compile(rf"^ +{_NAME} +(\d{{1,20}}) +(\d{{1,20}})$", re.MULTILINE),
    "uprobe": re.compile(rf"^ +\S+ +{_NAME} +(\d{{1,20}})$", re.MULTILINE),
}


@dataclass(frozen=True)
class Definition:
    """An event of ``kprobe_events``, ``uprobe_events`` or ``dynamic_events``, in their syntax.

    Its kind is ``p`` at a place or ``r`` at a return, and of dynamic ones ``f`` of an fprobe, ``t`` at a tracepoint or
    ``e`` at another event.
    """

    listed: str
    kind: str
    place: str
    fetched: tuple[str, ...] = ()

    @property
    def listing(self) -> str:
        return f"{TRACEFS}/{self.listed}_events"

    @property
    def text(self) -> str:
        return " ".join([f"{self.kind}:{_EVENT}", self.place, *self.fetched])


class TracedEvent(NamedTuple):
    """An event read back: its CPU, its number by the clock, its thread, its text, and the stack that was traced."""

    cpu: int
    number: int
    pid: int
    said: str
    stack: tuple[str, ...] = ()


_FRAME = " => "


class TraceEvent:
    """One event in a guest's instance."""

    def __init__(self, guest: Guest, event: str) -> None:
        self._guest = guest
        self._folder = f"{INSTANCE}/events/{event}"

    def switch(self, *, on: bool) -> None:
        """Enable or disable the event; a histogram then keeps it soft-enabled: hit, with nothing recorded."""
        self._guest.put(b"1" if on else b"0", f"{self._folder}/enable")

    def state(self) -> str:
        """The kernel's state of it: ``0`` or ``1``; ``0*`` if soft-enabled, for a histogram alone."""
        return kernel_value(self._guest, f"{self._folder}/enable")

    def record(self, *, on: bool) -> None:
        self._guest.put(b"1" if on else b"0", f"{INSTANCE}/tracing_on")

    def count(self, *, on: bool) -> None:
        """Start counting anew, or stop and drop the counts. A paused histogram continues counting (Linux 6.1)."""
        self._guest.put((_HISTOGRAM if on else f"!{_HISTOGRAM}").encode(), f"{self._folder}/trigger")

    def counts(self) -> dict[int, int]:
        text = self._guest.get(f"{self._folder}/hist", largest=1 << 20).decode("ascii", errors="replace")
        totals = _TOTALS.search(text)
        counts = {int(pid): int(hits) for pid, hits in _COUNTED.findall(text)}
        if totals is None or (len(counts), sum(counts.values())) != (int(totals[2]), int(totals[1])):
            raise EvidenceError("the histogram of the event cannot be read", detail=text.splitlines()[-8:])
        if int(totals[3]):
            raise EvidenceError(f"the histogram of the event has dropped {totals[3]} hits")
        return counts

    def trace_stacks(self, *, on: bool, user: bool) -> None:
        """Record the kernel's or the program's stack with each event."""
        self._guest.put(b"1" if on else b"0", f"{INSTANCE}/options/{'userstacktrace' if user else 'stacktrace'}")

    def empty(self) -> None:
        self._guest.put(b"", f"{INSTANCE}/trace")

    def recorded(self) -> Sequence[TracedEvent]:
        events: list[TracedEvent] = []
        for cpu, entries, lines in buffers(self._guest, INSTANCE):
            of_cpu: list[TracedEvent] = []
            for line in lines:
                if line.startswith(_FRAME) and of_cpu:
                    of_cpu[-1] = of_cpu[-1]._replace(stack=(*of_cpu[-1].stack, line.removeprefix(_FRAME).strip()))
                else:
                    of_cpu.append(traced_event(line))
            if len(of_cpu) != entries or any(event.cpu != cpu for event in of_cpu):
                raise EvidenceError(f"{len(of_cpu)} events of CPU {cpu} can be read, and its buffer says {entries}")
            events += of_cpu
        return events

    def recorded_with_stacks(self, *, user: bool) -> Sequence[TracedEvent]:
        """Each event with its stack, which the buffer has as an event of its own behind it."""
        events, heading = self.recorded(), "<user stack trace>" if user else "<stack trace>"
        pairs = list(zip(events[::2], events[1::2], strict=False))
        for event, stack in pairs:
            if stack.said != heading or stack.pid != event.pid or not stack.stack:
                raise EvidenceError("an event has no trace of the stack behind it", detail=[str(event), str(stack)])
        if len(events) % 2:
            raise EvidenceError("the last event has no trace of the stack behind it", detail=[str(events[-1])])
        return [event._replace(stack=stack.stack) for event, stack in pairs]


def buffers(guest: Guest, folder: str) -> Iterator[tuple[int, int | None, Sequence[str]]]:
    """Each CPU's number, the events in its buffer, and what it says. Raises EvidenceError if it has lost some."""
    for cpu in range(guest.machine.smp):
        lines = guest.get(f"{folder}/per_cpu/cpu{cpu}/stats").decode("ascii", errors="replace").splitlines()
        stats = {key: whole_number(value) for key, _, value in (line.partition(": ") for line in lines)}
        if any(stats.get(key) != 0 for key in ("overrun", "commit overrun", "dropped events")):
            raise EvidenceError(f"the buffer of CPU {cpu} has lost events", detail=[str(stats)])
        text = guest.get(f"{folder}/per_cpu/cpu{cpu}/trace", largest=16 << 20).decode("ascii", errors="replace")
        yield cpu, stats.get("entries"), [line for line in text.splitlines() if not line.startswith("#")]


def make_instance(guest: Guest) -> None:
    """Make the instance, which records nothing yet. Raises CommandFailed."""
    # An instance inherits this option. With it the kernel has a probe of its own at sched_switch.
    guest.put(b"0", f"{TRACEFS}/options/record-cmd")
    guest.succeed(["mkdir", INSTANCE])
    guest.put(b"0", f"{INSTANCE}/tracing_on")
    guest.put(BUFFER_KB.encode(), f"{INSTANCE}/buffer_size_kb")
    guest.put(CLOCK.encode(), f"{INSTANCE}/trace_clock")
    guest.put(b"1", f"{INSTANCE}/options/sym-addr")


def define(guest: Guest, definition: Definition) -> TraceEvent:
    """Make the event. Raises PlaceRefused with the kernel's own reason; UnsupportedError for a value not fetched."""
    try:
        guest.succeed(["sh", "-c", 'echo "$0" >> "$1"', definition.text, definition.listing])
    except CommandFailed:
        log = guest.get(f"{TRACEFS}/error_log", largest=_PROFILE_MAX).decode("ascii", errors="replace").splitlines()
        reasons = [line.partition("error: ")[2] for line in log if "error: " in line]
        reason = reasons[-1][:200] if reasons else "it gives no reason"
        # The last two lines are the definition and, below the place that is wrong, a "^".
        values = "\n".join(log[-2:-1]).find(f" {definition.fetched[0]}") if definition.fetched else -1
        refused = UnsupportedError if 0 <= values < log[-1].find("^") else PlaceRefused
        raise refused(f"the kernel refuses the event {definition.text!r}: {reason}", detail=log[-3:]) from None
    return TraceEvent(guest, _EVENT)


def event_number(guest: Guest, name: str) -> int:
    """Perf's number of the kernel's own event ``SYSTEM.NAME``. Raises EvidenceError if it does not exist."""
    number = whole_number(kernel_value(guest, f"{TRACEFS}/events/{known_event(guest, name)}/id"))
    if number is None:
        raise EvidenceError(f"the guest's kernel does not say the number of its event {name}")
    return number


def systems_of(guest: Guest, name: str) -> Sequence[str]:
    """The systems that have an event of this name."""
    listed = guest.get(f"{TRACEFS}/available_events", largest=_EVENTS_MAX).decode("ascii", errors="replace")
    return [system for system, _, event in (line.partition(":") for line in listed.splitlines()) if event == name]


def number_field(guest: Guest, name: str) -> str | None:
    """The first field of the event ``SYSTEM.NAME`` that is a number; None if it has none. Raises EvidenceError."""
    text = guest.get(f"{TRACEFS}/events/{known_event(guest, name)}/format", largest=_PROFILE_MAX)
    match = _NUMBER_FIELD.search(text.decode("ascii", errors="replace"))
    return None if match is None else match[1]


def known_event(guest: Guest, name: str) -> str:
    """The path of the kernel's own event ``SYSTEM.NAME``. Raises EvidenceError if it does not exist."""
    listed = guest.get(f"{TRACEFS}/available_events", largest=_EVENTS_MAX).decode("ascii", errors="replace")
    events = [line.replace(":", ".", 1) for line in listed.splitlines()]
    if name not in events:
        raise EvidenceError(f"the guest's kernel has no event {name}", hint=did_you_mean(name, events))
    return name.replace(".", "/", 1)


def remove(guest: Guest, definition: Definition | None) -> None:
    """Remove the instance with its records, and an event that was made. Raises CommandFailed."""
    guest.succeed(["rmdir", INSTANCE])
    if definition is not None:
        guest.succeed(["sh", "-c", 'echo "$0" >> "$1"', f"-:{_EVENT}", definition.listing])


def profiled(guest: Guest, kind: Literal["kprobe", "uprobe"]) -> list[int]:
    """The kernel's counts for the event: its hits, and for a kprobe the hits without a handler run."""
    text = guest.get(f"{TRACEFS}/{kind}_profile", largest=_PROFILE_MAX).decode("utf-8", errors="replace")
    matches = list(_PROFILED[kind].finditer(text))
    if len(matches) != 1:
        raise EvidenceError(f"the kernel's profile of {kind} events does not list the probe", detail=text.splitlines())
    return [int(number) for number in matches[0].groups()]


def traced_event(line: str) -> TracedEvent:
    """An event from its line of ``trace``. Raises EvidenceError for any other line.

    ``callbench-72  [000] d..1.  1433: probe: (vfs_read+0x5/0x310 <ffffffff813669e5>)``
    """
    match = re.fullmatch(r"^.{0,60}-(\d{1,10}) +\[(\d{3,5})\] +\S{1,10} +(\d{1,20}): (.{1,400})$", line)
    if match is None:
        raise EvidenceError(f"a line of the trace is not an event: {line[:200]!r}")
    pid, cpu, number, said = match.groups()
    return TracedEvent(int(cpu), int(number), int(pid), said)
