# SPDX-License-Identifier: GPL-2.0-only
"""When has a probe its final form? The kernel's optimiser of kprobes works in the background, ticks later.

So does the end of a BPF program's link on Linux 6.12, after bpf(2) and the removal of the pinned file have returned.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import EvidenceError, OtherMechanism
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.evidence import Observation, check_armed, check_same, check_untouched
from orchestrator.probes.point import ProbePoint

OPTIMISATION = "/proc/sys/debug/kprobes-optimization"

_TURNS = 100
"""Turns until a jump must be in place, or gone."""
_TURN = ("sleep", "0.1")
_MARKED = 10
"""Turns until a kprobe that may be optimised is marked so, with a wide margin."""
_OPTIMISER_TURN = "0.3"
"""Guest seconds in which the optimiser has had its turn: it begins five ticks after it is asked to."""


def allow_optimisation(guest: Guest, kind: ProbeKind) -> None:
    """Let the kernel optimise kprobes that are registered from now on, or not, as the kind has it."""
    guest.put(b"1" if kind.optimisation else b"0", OPTIMISATION)


def wait_until_armed(
    guest: Guest,
    kind: ProbeKind,
    point: ProbePoint,
    look: Callable[[], Observation],
    when: str,
    check_called: Callable[[Observation], None] = lambda seen: None,
) -> Observation:
    """Look until the probe has the kind's mechanism, and hits lead to it alone, by ``check_called``.

    Raises EvidenceError with what it has instead.
    """

    def check(seen: Observation) -> None:
        check_armed(kind, point, seen, when)
        check_called(seen)

    if kind.optimisation and kind.mechanism != "jump":
        # That it is not optimised is evidence only after the optimiser has had its turn.
        guest.succeed(["sleep", _OPTIMISER_TURN])
    turns = _TURNS if kind.mechanism == "jump" or kind.program is not None else 0
    return _wait_for(guest, look, check, turns)


def wait_until_untouched(
    guest: Guest, kind: ProbeKind, point: ProbePoint, look: Callable[[], Observation], when: str
) -> None:
    """Look until the original bytes are back. Raises EvidenceError where they are not."""
    has_programs = kind.program is not None or kind.has_own_programs
    turns = _TURNS if kind.optimisation or has_programs else 0
    _wait_for(guest, look, lambda seen: check_untouched(point, seen, when), turns)


def wait_until_same(guest: Guest, kind: ProbeKind, before: Observation, attachment: Attachment, when: str) -> None:
    """Look until a probe is as it was before another joined it. Raises EvidenceError where it is not."""
    _wait_for(guest, attachment.observe, lambda seen: check_same(kind, before, seen, attachment.point, when), _TURNS)


def _wait_for(
    guest: Guest, look: Callable[[], Observation], check: Callable[[Observation], None], turns: int
) -> Observation:
    """Observe until the check passes: once, and after each of up to ``turns`` sleeps of the guest's."""
    for turn in range(turns):
        try:
            seen = look()
            check(seen)
        except OtherMechanism:
            # The kernel marks a kprobe that it is going to optimise as it arms it (optimize_kprobe()).
            if turn == _MARKED:
                raise
        except EvidenceError:
            pass
        else:
            return seen
        guest.succeed(_TURN)
    seen = look()
    check(seen)
    return seen
