# SPDX-License-Identifier: GPL-2.0-only
"""An event of tracefs in the program that makes the calls: a uprobe or a uretprobe, as ``perf probe -x`` makes it.

The kernel counts its hits itself (uprobe_profile), whatever becomes of them: the histogram and the buffer must have as
many. It has no count of hits that it missed.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.probes import Handler, ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.called import Called
from orchestrator.probes.event_attachment import EventAttachment
from orchestrator.probes.evidence import check_untouched
from orchestrator.probes.place import Place, UserPlace
from orchestrator.probes.removal import removed
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.trace_event import (
    TRACEFS,
    Definition,
    TracedEvent,
    TraceEvent,
    define,
    make_instance,
    remove_instance,
    undefine,
)
from orchestrator.probes.user_point import EVENTS, UserPoint, observe_program

_DEFINED_AS = {"uprobe": "p", "uretprobe": "r"}
_PROFILE = f"{TRACEFS}/uprobe_profile"
_PROFILE_MAX = 1 << 16
_PROFILED = re.compile(r"^ +\S+ +probe +(\d{1,20})$", re.MULTILINE)
_AT_ENTRY = re.compile(r"probe: \(0x([0-9a-f]{1,16})\)")
_AT_RETURN = re.compile(r"probe: \(0x[0-9a-f]{1,16} <- 0x([0-9a-f]{1,16})\)")


@dataclass(frozen=True)
class UserDefinition(Definition):
    """A uprobe (``p``) or a uretprobe (``r``) as an event, at a place in a file of the guest's: the ``offset``.

    ``semaphore`` is the place of the counter that a static probe point has, or 0.
    """

    semaphore: int

    @property
    def listing(self) -> str:
        """The file of tracefs that takes it."""
        return EVENTS

    @property
    def place(self) -> str:
        """As it is written there."""
        counter = f"({self.semaphore:#x})" if self.semaphore else ""
        return f"{self.symbol}:{self.offset:#x}{counter}"


class UserEventAttachment(EventAttachment):
    """A uprobe's event that is enabled. Made by ``user_event_attached``."""

    def __init__(self, guest: Guest, kind: ProbeKind, event: TraceEvent, place: Place) -> None:
        super().__init__(guest, kind, event, place)
        self._before = 0
        self._hits = 0

    def handle(self, handler: Handler) -> None:
        """Choose the output, and note how many hits the kernel has counted for the last one."""
        hits = kernels_hits(self._guest)
        self._hits, self._before = hits - self._before, hits
        super().handle(handler)

    def counts(self, called: Called) -> tuple[int, int | None]:
        """What the histogram had, which must be all that the kernel has counted."""
        hits, others = super().counts(called)
        self._check_all(hits + (others or 0), "the histogram")
        return hits, others

    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        """What the buffer has, which must be all that the kernel has counted."""
        hits, others = super().recorded(called, symbols, file)
        self._check_all(hits + others, "the buffer")
        return hits, others

    def _check_all(self, number: int, where: str) -> None:
        if number != self._hits:
            raise EvidenceError(f"the kernel has counted {self._hits} hits of the uprobe, and {where} has {number}")

    def _check(self, event: TracedEvent, symbols: Symbols) -> None:
        """Raise EvidenceError unless an event is of this probe point, or of a return from its function."""
        said = (_AT_RETURN if self._kind.event == "uretprobe" else _AT_ENTRY).fullmatch(event.said)
        if said is None or not self.point.is_at(int(said[1], 16)):
            raise EvidenceError(f"an event is not of {self.point.name}", detail=[str(event)])

    def _check_none_missed(self) -> None:
        """The kernel counts no missed hits of uprobes; those that it counted are compared."""


def kernels_hits(guest: Guest) -> int:
    """Hits of the event since it was made, by the kernel's own count. Raises EvidenceError."""
    text = guest.get(_PROFILE, largest=_PROFILE_MAX).decode("utf-8", errors="replace")
    found = _PROFILED.findall(text)
    if len(found) != 1:
        raise EvidenceError("the kernel's profile of uprobe events does not list the probe", detail=text.splitlines())
    return int(found[0])


@contextlib.contextmanager
def user_event_attached(guest: Guest, kind: ProbeKind, point: UserPoint) -> Iterator[UserEventAttachment]:
    """Make an event at the point of the program and enable it; disable and remove it at the end.

    Raises EvidenceError when the kernel refuses it (with its own reason), or when a process that is started behind it
    has not the original bytes.
    """
    assert kind.event is not None
    check_untouched(point, observe_program(guest, point), "before enabling")
    make_instance(guest)
    definition = UserDefinition(_DEFINED_AS[kind.event], point.file, point.file_offset, point.semaphore)
    with removed(lambda: _remove(guest, definition, point)):
        event = define(guest, definition)
        event.switch(on=True)
        yield UserEventAttachment(guest, kind, event, UserPlace(guest, kind, point))


def _remove(guest: Guest, definition: Definition, point: UserPoint) -> None:
    remove_instance(guest)
    undefine(guest, definition)
    check_untouched(point, observe_program(guest, point), "after removing the event")
