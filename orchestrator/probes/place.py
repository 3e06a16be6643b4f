# SPDX-License-Identifier: GPL-2.0-only
"""Where the kernel itself puts a probe that it has been asked for: at a function, at a tracepoint, in a program."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.bpf_program import pinned_links
from orchestrator.probes.evidence import Observation, check_called, followed, observe
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tracepoint import find_tracepoint
from orchestrator.probes.tracer import Traced
from orchestrator.probes.user_point import UserPoint, events_at, observe_program

_CALLED = {
    "trace": re.compile(r"trace_event_raw_event_\w+|ftrace_syscall_(enter|exit)"),
    "tracepoint": re.compile(r"perf_trace_\w+|perf_syscall_(enter|exit)"),
    "raw-tracepoint": re.compile(r"__bpf_trace_\w+"),
}
"""What a tracepoint calls for an event of tracefs, for perf's, and for a BPF program (include/trace)."""
_SYSTEM_CALL = re.compile(r"syscalls\.(sys_(?:enter|exit))_\w+")


class Place(ABC):
    """A place before, while and after it is probed. ``point`` has its original bytes."""

    point: ProbePoint

    @abstractmethod
    def observe(self) -> Observation:
        """Read all sources of evidence there."""

    @abstractmethod
    def check_called(self, seen: Observation, when: str) -> None:
        """Raise EvidenceError unless a hit leads to the probe, and to it alone."""


class _Function(Place):
    def __init__(self, guest: Guest, kind: ProbeKind, point: ProbePoint, symbols: Symbols) -> None:
        self._guest, self._kind, self._symbols = guest, kind, symbols
        self._called: dict[tuple[bytes, Traced], str] = {}
        self.point = point

    def observe(self) -> Observation:
        seen = observe(self._guest, self.point, self._kind.site)
        return followed(self._guest, lambda: self._symbols, self._kind, self.point, seen, self._called)

    def check_called(self, seen: Observation, when: str) -> None:
        if self._kind.mechanism in ("ftrace", "direct"):
            check_called(self._kind, self.point, seen, "", when, lambda: self._symbols)


class _Tracepoint(Place):
    def __init__(self, guest: Guest, kind: ProbeKind, name: str, symbols: Symbols) -> None:
        self._guest, self._symbols = guest, symbols
        self._called = _CALLED[kind.event or kind.program or ""]
        self._tracepoint = find_tracepoint(guest, symbols, name)
        self.point = self._tracepoint.branch

    def observe(self) -> Observation:
        return self._tracepoint.observe(self._guest, self._symbols)

    def check_called(self, seen: Observation, when: str) -> None:
        if not self._called.fullmatch(seen.called or ""):
            raise EvidenceError(
                f"{when}, the tracepoint {self._tracepoint.name} calls {seen.called or 'nothing'}, "
                f"not one function {self._called.pattern}"
            )


class UserPlace(Place):
    """A place in the program that makes the calls, looked at in a process that is started to be looked at.

    The kernel puts a uprobe into each process as that maps the file. It lists an event's in tracefs. That of a program
    lives as long as its link, which is pinned.
    """

    def __init__(self, guest: Guest, kind: ProbeKind, point: UserPoint) -> None:
        self._guest = guest
        self._listed = events_at if kind.program is None else lambda guest, _: pinned_links(guest)
        self._in_program = point
        self.point = point

    def observe(self) -> Observation:
        return observe_program(self._guest, self._in_program, self._listed)

    def check_called(self, seen: Observation, when: str) -> None:
        if seen.probes != 1:
            raise EvidenceError(f"{when}, the kernel has {seen.probes} uprobes at {self.point.name}, not one")


def place_of(guest: Guest, kind: ProbeKind, point: ProbePoint, symbols: Symbols) -> Place:
    """The place of a kind: the ``point``, or its tracepoint's. Raises EvidenceError where there is no such one."""
    if isinstance(point, UserPoint):
        return UserPlace(guest, kind, point)
    if kind.tracepoint is None:
        return _Function(guest, kind, point, symbols)
    return _Tracepoint(guest, kind, tracepoint_of_event(kind.tracepoint), symbols)


def tracepoint_of_event(name: str) -> str:
    """The tracepoint of an event ``SYSTEM.NAME``, or of a plain name: a system call has no tracepoint of its own."""
    call = _SYSTEM_CALL.fullmatch(name)
    return call[1] if call else name.rpartition(".")[2]
