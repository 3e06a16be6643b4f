# SPDX-License-Identifier: GPL-2.0-only
"""The recorder: a module that records the standard kernel events by one mechanism, and its report."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

from orchestrator.arch import Arch
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.module_source import Value
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.data import unknown
from orchestrator.catalog.kernels import without_option
from orchestrator.catalog.probes import RecorderKind, RecorderName, standard_events
from orchestrator.errors import EvidenceError, UsageError

FORMAT = 1
MOST_EVENTS = 64
MOST_PLACES = 128
MOST_SITES = 256
MOST_CPUS = 1024

_LONGEST = 128 << 10
_WRAP = 1 << 32
"""Where an i386 kernel's counts wrap."""
_NAME = r"[A-Za-z_][A-Za-z0-9_.]{0,127}"
_COUNT = r"0|[1-9][0-9]{0,19}"
_BYTES = r"(?:[0-9a-f]{2}){1,5}"
_COUNTS = rf"recorded=({_COUNT}) missed=({_COUNT})"
_EVENT = rf"event ({_NAME}) {_COUNTS}\n"
_PLACE = rf"place ({_NAME}) ({_NAME}) {_COUNTS}\n"
_SITE = rf"site ({_NAME}) ([0-9a-f]{{1,16}}) original=({_BYTES}) live=({_BYTES})\n"
_REPORT = re.compile(
    r"recorder format=(?P<format>\d{1,4}) mechanism=(?P<mechanism>[a-z_]{1,40}) state=(?P<state>recording|stopped) "
    rf"restored=(?P<restored>-|yes|no)\nrings cpus=(?P<cpus>{_COUNT}) slots=(?P<slots>{_COUNT}) "
    rf"event-size=(?P<size>{_COUNT}) written=(?P<written>{_COUNT}) overwritten=(?P<overwritten>{_COUNT})\n"
    rf"(?P<events>(?:{_EVENT}){{0,{MOST_EVENTS}}})(?P<places>(?:{_PLACE}){{0,{MOST_PLACES}}})"
    rf"(?P<sites>(?:{_SITE}){{0,{MOST_SITES}}})"
    rf"end events=(?P<all_events>{_COUNT}) places=(?P<all_places>{_COUNT}) sites=(?P<all_sites>{_COUNT})\n"
)


class EventCount(NamedTuple):
    """How often an event was recorded, and how often its handler was skipped; modulo 2^32 on i386."""

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
    """Bytes changed for a place: before, and now."""

    symbol: str
    address: int
    original: bytes
    live: bytes


@dataclass(frozen=True)
class RecorderReport:
    """A recorder's report.

    ``slots`` is each CPU's capacity in events, ``written`` the number of events that all CPUs ever recorded,
    ``overwritten`` those replaced by newer ones. ``restored`` is None while it records.
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

    @property
    def missed(self) -> int:
        return sum(count.missed for count in self.events)

    @property
    def hits(self) -> int:
        return sum(count.recorded for count in self.events) + self.missed


def parse_report(content: bytes) -> RecorderReport:
    """Parse the module's report. Raises EvidenceError unless it is complete and consistent.

    While it records, counts are of slightly different moments, so only invariants are checked.
    """
    if len(content) > _LONGEST:
        raise _unreadable(f"it has {len(content)} bytes")
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError:
        raise _unreadable("it is not all ASCII") from None
    match = _REPORT.match(text)
    if match is None:
        raise _unreadable("a line of another kind was expected", text)
    if match["format"] != str(FORMAT):
        raise EvidenceError(f"the recorder's report has format {match['format']}, not {FORMAT}")
    if match.end() != len(text):
        raise _unreadable("more follows its end", text[match.end() :])
    cpus, slots, event_size, written, overwritten = map(
        int, match.group("cpus", "slots", "size", "written", "overwritten")
    )
    recording, is_restored = match["state"] == "recording", match["restored"] == "yes"
    events = [EventCount(name, int(a), int(b)) for name, a, b in re.findall(_EVENT, match["events"])]
    places = [PlaceCount(e, s, int(a), int(b)) for e, s, a, b in re.findall(_PLACE, match["places"])]
    sites = [
        Site(name, int(address, 16), bytes.fromhex(original), bytes.fromhex(live))
        for name, address, original, live in re.findall(_SITE, match["sites"])
    ]
    names, said = {event.event for event in events}, match.group("all_events", "all_places", "all_sites")
    # Between all events in one CPU's ring and an equal number in each.
    possible = range(max(0, written - cpus * slots), max(0, written - slots) + 1)
    wrong = {
        "it is restored while it records, or neither when it does not": recording != (match["restored"] == "-"),
        "its rings cannot be such": not (0 < cpus <= MOST_CPUS and slots and event_size),
        f"{overwritten} of {written} events cannot have been overwritten in {cpus} rings of {slots}": (
            overwritten not in possible
        ),
        "it does not hold as many lines as it says": tuple(map(int, said)) != (len(events), len(places), len(sites)),
        "its events are not listed once each": (
            len(names) != len(events) or not names or {place.event for place in places} - names != set()
        ),
        "a place is listed twice": len({place.symbol for place in places}) != len(places),
        "its places and sites are not the same": {place.symbol for place in places} != {site.symbol for site in sites},
        "a site's bytes are not as many as they were": any(len(site.original) != len(site.live) for site in sites),
        "what it says of its sites is not what it shows": (
            not recording and is_restored != all(site.live == site.original for site in sites)
        ),
    }
    for event in [] if recording else events:
        mine = [place for place in places if place.event == event.event]
        sums = sum(count.recorded for count in mine), sum(count.missed for count in mine)
        wrong[f"the places of {event.event} do not add up to it"] = event[1:] != sums
    for why, is_wrong in wrong.items():
        if is_wrong:
            raise _unreadable(why)
    # The rings count writes independently of the places. A hit is counted before its slot is reserved, and a report
    # reads the rings first: while it records, the places may be ahead, and never behind.
    recorded = sum(event.recorded for event in events)
    ahead = (recorded - written) % _WRAP
    if ahead >= _WRAP // 2 if recording else ahead:
        what = f"{written} events were written to the recorder's rings, and its places counted {recorded} hits"
        raise EvidenceError(what)
    restored, rings = None if recording else is_restored, (cpus, slots, event_size, written, overwritten)
    mechanism = match["mechanism"].replace("_", "-")
    return RecorderReport(mechanism, recording, restored, *rings, tuple(events), tuple(places), tuple(sites))


def _unreadable(why: str, text: str = "") -> EvidenceError:
    detail = [line[:200] for line in text.splitlines()[:1]]
    return EvidenceError(f"the recorder's report cannot be read: {why}", detail=detail)


MECHANISMS: Sequence[RecorderName] = get_args(RecorderName)
TEMPLATE = "recorder"
MODULE = "lab_recorder"

REPORT = f"/sys/kernel/debug/{MODULE}/report"
STOP = f"/sys/module/{MODULE}/parameters/stop"
"""In the guest: a loaded recorder's report, and the file that stops it when 1 is written to it."""


def recorder_values(
    mechanism: RecorderName, arch: Arch, events: Sequence[str] | None = None, code: KernelCode | None = None
) -> dict[str, Value]:
    """Values for rendering the template ``recorder`` for these standard events (all if None).

    Without the kernel's ``code``, functions have their current names. Raises UsageError for an unknown mechanism or
    event, or an event that is named twice.
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
        other_pairs = [(number, event.marker) for number, event in enumerate(chosen)]
    else:
        calls = [(number, symbol) for number, event in enumerate(chosen) for symbol in event.call_functions(arch)]
        functions = [event.function(lambda name: code is None or code.has_function(name)) for event in chosen]
        other_pairs = [(number, symbol) for number, symbol in enumerate(functions) if symbol is not None]
    return {
        "mechanism": mechanism.replace("-", "_"),
        "events": tuple(names),
        "calls": len(calls),
        "symbols": tuple(symbol for _, symbol in [*calls, *other_pairs]),
        "events_of": tuple(number for number, _ in [*calls, *other_pairs]),
    }


def unsupported_reason(kernel: Kernel, kind: RecorderKind) -> str | None:
    """Why this kernel cannot have such a recorder, by its configuration; None if it can."""
    for option in kind.needs:
        if kernel.config.get(option) != "y":
            return without_option(option, kind.needs, kernel.spec.arch)
    if kind.module == "kprobe-boosted" and kernel.config.get("CONFIG_PREEMPTION") == "y":
        return "this kernel is preemptible, and such a kernel boosts no kprobe"
    return None
