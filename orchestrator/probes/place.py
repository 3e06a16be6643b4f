# SPDX-License-Identifier: GPL-2.0-only
"""Where the kernel puts a requested probe: at a function, at a tracepoint, or in a program."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from orchestrator.artifacts.function_entry import entry_places, tracer_place
from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.bpf_program import pinned_links
from orchestrator.probes.evidence import Observation, check_armed, check_called, followed, observe
from orchestrator.probes.final_form import wait_until_armed
from orchestrator.probes.point import SHOWN_BYTES, ProbePoint, find_entry
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.traced_functions import Traced
from orchestrator.probes.tracepoints import STUB, find_tracepoint
from orchestrator.probes.user_point import UserPoint, events_at, observe_program


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
    stub = STUB + name
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
