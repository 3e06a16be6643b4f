# SPDX-License-Identifier: GPL-2.0-only
"""A module that records the standard kernel events by one mechanism, and the report that it writes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, get_args

from orchestrator.arch import Arch
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import Value
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import without_option
from orchestrator.catalog.probes import RecorderName, standard_events
from orchestrator.errors import EvidenceError, UsageError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import OPTIMISATION, removed
from orchestrator.probes.loading import load

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


@dataclass(frozen=True)
class EventCount:
    """How often an event was recorded, and how often its handler was left out. Modulo 2^32 on i386."""

    event: str
    recorded: int
    missed: int


@dataclass(frozen=True)
class PlaceCount:
    """The same for one place: a function, or the markers of one name."""

    event: str
    symbol: str
    recorded: int
    missed: int


@dataclass(frozen=True)
class Site:
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
        _check_sums(lines, events, places)
        if (head[3] == "yes") != all(site.live == site.original for site in sites):
            lines.refuse("what it says of its sites is not what it shows")
    report = RecorderReport(
        mechanism=head[1].replace("_", "-"),
        recording=recording,
        restored=None if recording else head[3] == "yes",
        cpus=cpus,
        slots=slots,
        event_size=event_size,
        written=written,
        overwritten=overwritten,
        events=tuple(events),
        places=tuple(places),
        sites=tuple(sites),
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


def _check_sums(lines: _Lines, events: Sequence[EventCount], places: Sequence[PlaceCount]) -> None:
    for event in events:
        mine = [place for place in places if place.event == event.event]
        if (event.recorded, event.missed) != (sum(p.recorded for p in mine), sum(p.missed for p in mine)):
            lines.refuse(f"the places of {event.event} do not add up to it")


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
        for _ in range(most):
            if self._next >= len(self._lines) or not pattern.fullmatch(self._lines[self._next]):
                return
            yield self.take(pattern)

    def end(self) -> None:
        if self._next != len(self._lines):
            self.refuse("more follows its end")

    def refuse(self, why: str) -> NoReturn:
        line = self._lines[self._next] if self._next < len(self._lines) else ""
        raise EvidenceError(f"the recorder's report cannot be read: {why}", detail=[line[:200]] if line else [])


# A module that records the standard kernel events by one mechanism: rendered, loaded, read, stopped.

Mechanism = RecorderName
MECHANISMS: Sequence[Mechanism] = get_args(Mechanism)
TEMPLATE = "recorder"
MODULE = "lab_recorder"

REPORT = f"/sys/kernel/debug/{MODULE}/report"
STOP = f"/sys/module/{MODULE}/parameters/stop"
"""In the guest: the report of a loaded recorder, and the file that stops it when a 1 is written to it."""
_LIMIT = 600.0
"""Host seconds: a djprobe goes in and out in a tenth of a second, in a guest that is busy or preemptible in seconds."""

_NEEDS: Mapping[Mechanism, Sequence[str]] = {
    "marker": ("CONFIG_LAB_MARKERS", "CONFIG_DEBUG_FS"),
    "djprobe": ("CONFIG_KPROBES", "CONFIG_DEBUG_FS"),
    "kprobe": ("CONFIG_KPROBES", "CONFIG_KALLSYMS_ALL", "CONFIG_DEBUG_FS"),
    "kprobe-boosted": ("CONFIG_KPROBES", "CONFIG_KALLSYMS_ALL", "CONFIG_DEBUG_FS"),
    "kprobe-optimized": ("CONFIG_OPTPROBES", "CONFIG_KALLSYMS_ALL", "CONFIG_DEBUG_FS"),
    "jprobe": ("CONFIG_KPROBES", "CONFIG_DEBUG_FS"),
}


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


def unsupported_reason(kernel: Kernel, mechanism: Mechanism) -> str | None:
    """Why this kernel cannot have a recorder of this mechanism, by its own configuration; None when it can."""
    for option in _NEEDS[mechanism]:
        if kernel.config.get(option) != "y":
            return without_option(option, _NEEDS[mechanism], kernel.spec.arch)
    if mechanism == "kprobe-boosted" and kernel.config.get("CONFIG_PREEMPTION") == "y":
        return "this kernel is preemptible, and such a kernel boosts no kprobe"
    return None


class Recorder:
    """A loaded recorder. Made by ``recording``."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def report(self) -> RecorderReport:
        return parse_report(self._guest.get(REPORT))

    def stop(self) -> RecorderReport:
        """Take everything out, once; what it recorded is final then.

        Places are removed one after the other: to compare events with each other, read the report before.
        Raises EvidenceError where any original byte is not back.
        """
        self._guest.put(b"1", STOP, time_limit=_LIMIT)
        report = self.report()
        if report.recording:
            raise EvidenceError("the recorder still records after it was stopped")
        if not report.restored:
            wrong = [f"{site.symbol} at {site.address:#x}" for site in report.sites if site.live != site.original]
            raise EvidenceError("the kernel's original bytes are not back after recording", detail=wrong[:10])
        return report


@contextlib.contextmanager
def recording(guest: Guest, mechanism: Mechanism, module: Module) -> Iterator[Recorder]:
    """Load a recorder, which records from then on; stop and unload it at the end.

    Raises EvidenceError when the module is refused (with its own reason from the kernel's log), when it is another
    mechanism's, or when the original bytes are not back.
    """
    guest.put(b"1" if mechanism == "kprobe-optimized" else b"0", OPTIMISATION)
    load(guest, module.name, module.file, time_limit=_LIMIT)
    recorder = Recorder(guest)
    with removed(lambda: guest.succeed(["rmmod", module.name], time_limit=_LIMIT)):
        report = recorder.report()
        if report.mechanism != mechanism:
            raise EvidenceError(f"the recorder's mechanism is {report.mechanism}, not {mechanism}")
        yield recorder
        recorder.stop()
