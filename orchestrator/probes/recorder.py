# SPDX-License-Identifier: GPL-2.0-only
"""A module that records the standard kernel events by one mechanism, and the report that it writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, get_args

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import Value
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import Arch, without_option
from orchestrator.catalog.probes import RecorderKind, RecorderName, standard_events
from orchestrator.errors import EvidenceError, UsageError

# A recorder's report, parsed and checked: the lines of ``kmods/recorder/places.c``.

FORMAT = 1
MOST_EVENTS = 64
MOST_PLACES = 128
MOST_SITES = 256
MOST_CPUS = 1024

_LONGEST = 128 << 10
_WRAP = 1 << 32
"""Where an i386 kernel's counts begin again."""
_NAME = r"[A-Za-z_][A-Za-z0-9_.]{0,127}"
_COUNT = r"0|[1-9][0-9]{0,19}"
_BYTES = r"(?:[0-9a-f]{2}){1,5}"
_COUNTS = rf"recorded=({_COUNT}) missed=({_COUNT})"
_HEAD = re.compile(r"recorder format=(\d{1,4}) mechanism=([a-z_]{1,40}) state=(recording|stopped) restored=(-|yes|no)")
_RINGS = re.compile(
    rf"rings cpus=({_COUNT}) slots=({_COUNT}) event-size=({_COUNT}) written=({_COUNT}) overwritten=({_COUNT})"
)
_EVENT = re.compile(rf"event ({_NAME}) {_COUNTS}")
_PLACE = re.compile(rf"place ({_NAME}) ({_NAME}) {_COUNTS}")
_SITE = re.compile(rf"site ({_NAME}) ([0-9a-f]{{1,16}}) original=({_BYTES}) live=({_BYTES})")
_END = re.compile(rf"end events=({_COUNT}) places=({_COUNT}) sites=({_COUNT})")


class EventCount(NamedTuple):
    """How often an event was recorded, and how often its handler was left out. Modulo 2^32 on i386."""

    event: str
    recorded: int
    missed: int


class PlaceCount(NamedTuple):
    """The same for one place: a function, or the markers of one name."""

    event: str
    symbol: str
    recorded: int
    missed: int


class Site(NamedTuple):
    """Where bytes change for a place: what they were before, and what they are."""

    symbol: str
    address: int
    original: bytes
    live: bytes


@dataclass(frozen=True)
class RecorderReport:
    """A recorder's whole report.

    ``slots`` is each CPU's room in events, ``written`` what all CPUs ever recorded, ``overwritten`` what newer events
    took the place of. ``restored`` is None while it records.
    """

    mechanism: str
    recording: bool
    restored: bool | None
    cpus: int
    slots: int
    event_size: int
    written: int
    overwritten: int
    events: tuple[EventCount, ...]
    places: tuple[PlaceCount, ...]
    sites: tuple[Site, ...]

    def recorded(self, event: str) -> int:
        return {count.event: count.recorded for count in self.events}[event]

    @property
    def missed(self) -> int:
        return sum(count.missed for count in self.events)

    @property
    def hits(self) -> int:
        return sum(count.recorded for count in self.events) + self.missed


def parse_report(content: bytes) -> RecorderReport:
    """The report in what the module shows. Raises EvidenceError for anything but a whole one that agrees with itself.

    While it records, counts are of slightly different moments, so only what holds at any time is compared.
    """
    lines = _Lines(content)
    head = lines.take(_HEAD)
    if int(head[0]) != FORMAT:
        raise EvidenceError(f"the recorder's report has format {head[0]}, not {FORMAT}")
    recording = head[2] == "recording"
    if recording != (head[3] == "-"):
        lines.refuse("it is restored while it records, or neither when it does not")
    cpus, slots, event_size, written, overwritten = map(int, lines.take(_RINGS))
    if not (0 < cpus <= MOST_CPUS and slots and event_size):
        lines.refuse("its rings cannot be such")
    # Between all events in one CPU's ring and the same number in each.
    if not max(0, written - cpus * slots) <= overwritten <= max(0, written - slots):
        lines.refuse(f"{overwritten} of {written} events cannot have been overwritten in {cpus} rings of {slots}")
    events = [EventCount(name, int(a), int(b)) for name, a, b in lines.while_they_match(_EVENT, MOST_EVENTS)]
    places = [PlaceCount(e, s, int(a), int(b)) for e, s, a, b in lines.while_they_match(_PLACE, MOST_PLACES)]
    sites = [
        Site(name, int(address, 16), bytes.fromhex(original), bytes.fromhex(live))
        for name, address, original, live in lines.while_they_match(_SITE, MOST_SITES)
    ]
    if tuple(map(int, lines.take(_END))) != (len(events), len(places), len(sites)):
        lines.refuse("it does not hold as many lines as it says")
    lines.end()
    _check_names(lines, events, places, sites)
    if not recording:
        for event in events:
            mine = [place for place in places if place.event == event.event]
            if event[1:] != (sum(one.recorded for one in mine), sum(one.missed for one in mine)):
                lines.refuse(f"the places of {event.event} do not add up to it")
        if (head[3] == "yes") != all(site.live == site.original for site in sites):
            lines.refuse("what it says of its sites is not what it shows")
    restored = None if recording else head[3] == "yes"
    rings = cpus, slots, event_size, written, overwritten
    report = RecorderReport(
        head[1].replace("_", "-"), recording, restored, *rings, tuple(events), tuple(places), tuple(sites)
    )
    _check_written(report)
    return report


def _check_written(report: RecorderReport) -> None:
    """Compare the places' own counters with the heads of the rings, which count independently.

    A hit is counted before its slot is reserved, and the report reads the rings first: while it records, the places
    may be ahead, and never behind.
    """
    recorded = sum(event.recorded for event in report.events)
    ahead = (recorded - report.written) % _WRAP
    if ahead if not report.recording else ahead >= _WRAP // 2:
        raise EvidenceError(
            f"{report.written} events were written to the recorder's rings, and its places counted {recorded} hits"
        )


def _check_names(
    lines: _Lines, events: Sequence[EventCount], places: Sequence[PlaceCount], sites: Sequence[Site]
) -> None:
    names = {event.event for event in events}
    if len(names) != len(events) or not names or {place.event for place in places} - names:
        lines.refuse("its events are not listed once each")
    if len({place.symbol for place in places}) != len(places):
        lines.refuse("a place is listed twice")
    if {place.symbol for place in places} != {site.symbol for site in sites}:
        lines.refuse("its places and sites are not the same")
    if any(len(site.original) != len(site.live) for site in sites):
        lines.refuse("a site's bytes are not as many as they were")


class _Lines:
    """A report's lines, taken one after the other."""

    def __init__(self, content: bytes) -> None:
        self._lines: list[str] = []
        self._next = 0
        if len(content) > _LONGEST:
            self.refuse(f"it has {len(content)} bytes")
        try:
            text = content.decode("ascii")
        except UnicodeDecodeError:
            self.refuse("it is not all ASCII")
        if not text.endswith("\n"):
            self.refuse("it is cut off")
        self._lines = text[:-1].split("\n")

    def take(self, pattern: re.Pattern[str]) -> tuple[str, ...]:
        found = pattern.fullmatch(self._lines[self._next]) if self._next < len(self._lines) else None
        if found is None:
            self.refuse("a line of another kind was expected")
        self._next += 1
        return tuple(found.groups())

    def while_they_match(self, pattern: re.Pattern[str], most: int) -> Iterator[tuple[str, ...]]:
        for line in self._lines[self._next : self._next + most]:
            if not pattern.fullmatch(line):
                return
            yield self.take(pattern)

    def end(self) -> None:
        if self._next != len(self._lines):
            self.refuse("more follows its end")

    def refuse(self, why: str) -> NoReturn:
        line = self._lines[self._next] if self._next < len(self._lines) else ""
        raise EvidenceError(f"the recorder's report cannot be read: {why}", detail=[line[:200]] if line else [])


# A module that records the standard kernel events by one mechanism.

Mechanism = RecorderName
MECHANISMS: Sequence[Mechanism] = get_args(Mechanism)
TEMPLATE = "recorder"
MODULE = "lab_recorder"

REPORT = f"/sys/kernel/debug/{MODULE}/report"
STOP = f"/sys/module/{MODULE}/parameters/stop"
"""In the guest: the report of a loaded recorder, and the file that stops it when a 1 is written to it."""


def recorder_values(
    mechanism: Mechanism, arch: Arch, events: Sequence[str] | None = None, code: KernelCode | None = None
) -> dict[str, Value]:
    """What to render the template ``recorder`` with, for these standard events (all of them when None).

    Where the kernel's ``code`` is not at hand, functions have their names of today.
    Raises UsageError for an unknown mechanism or event, or for an event that is named twice.
    """
    if mechanism not in MECHANISMS:
        raise UsageError(unknown("mechanism", mechanism, MECHANISMS))
    catalogue = standard_events()
    names = list(catalogue) if events is None else list(events)
    for name in names:
        if name not in catalogue:
            raise UsageError(unknown("event", name, catalogue))
    if not names or len(set(names)) != len(names):
        raise UsageError("a recorder has one event at least, and each once")
    chosen = [catalogue[name] for name in names]
    if mechanism == "marker":
        calls = []
        others = [(number, event.marker) for number, event in enumerate(chosen)]
    else:
        calls = [(number, symbol) for number, event in enumerate(chosen) for symbol in event.call_functions(arch)]
        functions = [event.function(lambda name: code is None or code.has_function(name)) for event in chosen]
        others = [(number, symbol) for number, symbol in enumerate(functions) if symbol is not None]
    return {
        "mechanism": mechanism.replace("-", "_"),
        "events": tuple(names),
        "calls": len(calls),
        "symbols": tuple(symbol for _, symbol in [*calls, *others]),
        "events_of": tuple(number for number, _ in [*calls, *others]),
    }


def unsupported_reason(kernel: Kernel, kind: RecorderKind) -> str | None:
    """Why this kernel cannot have such a recorder, by its own configuration; None when it can."""
    for option in kind.needs:
        if kernel.config.get(option) != "y":
            return without_option(option, kind.needs, kernel.spec.arch)
    if kind.module == "kprobe-boosted" and kernel.config.get("CONFIG_PREEMPTION") == "y":
        return "this kernel is preemptible, and such a kernel boosts no kprobe"
    return None
