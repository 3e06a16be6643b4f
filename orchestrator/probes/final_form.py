# SPDX-License-Identifier: GPL-2.0-only
"""Wait for the final form of a probe.

The kernel optimises kprobes in the background, ticks later; Linux 6.12 also ends a BPF program's link in the
background.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import (
    EvidenceError,
    OtherMechanism,
)
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.evidence import Observation, check_armed, check_same, check_untouched
from orchestrator.probes.point import ProbePoint

OPTIMISATION = "/proc/sys/debug/kprobes-optimization"


_TURNS = 100
"""Polls until a jump must be in place, or gone."""


_MARKED = 10
"""Polls until an optimisable kprobe is marked so, with a wide margin."""


_OPTIMISER_TURN = "0.3"
"""Guest seconds in which the optimiser has run: it starts five ticks after the request."""


def allow_optimisation(guest: Guest, kind: ProbeKind) -> None:
    """Allow or forbid the kernel to optimise kprobes registered from now on, as the kind requires."""
    guest.put(b"1" if kind.optimisation else b"0", OPTIMISATION)


def wait_until_armed(
    guest: Guest,
    kind: ProbeKind,
    point: ProbePoint,
    look: Callable[[], Observation],
    when: str,
    check_called: Callable[[Observation], None] = lambda seen: None,
) -> Observation:
    """Poll until the probe has the kind's mechanism and, by ``check_called``, hits lead to it alone.

    Raises EvidenceError with what it has instead.
    """

    def check(seen: Observation) -> None:
        check_armed(kind, point, seen, when)
        check_called(seen)

    if kind.optimisation and kind.mechanism != "jump":
        # Not being optimised is evidence only after the optimiser has run.
        guest.succeed(["sleep", _OPTIMISER_TURN])
    turns = _TURNS if kind.mechanism == "jump" or kind.program is not None else 0
    return _wait_for(guest, look, check, turns)


def wait_until_untouched(
    guest: Guest, kind: ProbeKind, point: ProbePoint, look: Callable[[], Observation], when: str
) -> None:
    """Poll until the original bytes are restored. Raises EvidenceError if they are not."""
    has_programs = kind.program is not None or kind.has_own_programs
    turns = _TURNS if kind.optimisation or has_programs else 0
    _wait_for(guest, look, lambda seen: check_untouched(point, seen, when), turns)


def wait_until_same(guest: Guest, kind: ProbeKind, before: Observation, attachment: Attachment, when: str) -> None:
    """Poll until a probe is as it was before another one joined it. Raises EvidenceError if it is not."""
    _wait_for(guest, attachment.observe, lambda seen: check_same(kind, before, seen, attachment.point, when), _TURNS)


def _wait_for(
    guest: Guest, look: Callable[[], Observation], check: Callable[[Observation], None], turns: int
) -> Observation:
    turn = 0
    while True:
        try:
            seen = look()
            check(seen)
            return seen
        except EvidenceError as error:
            # The kernel marks a kprobe that it is going to optimise as it arms it (optimize_kprobe()).
            if turn == turns or (turn == _MARKED and isinstance(error, OtherMechanism)):
                raise
        guest.succeed(("sleep", "0.1"))
        turn += 1
