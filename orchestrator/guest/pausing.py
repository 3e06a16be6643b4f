# SPDX-License-Identifier: GPL-2.0-only
"""Pausing a guest while the host evaluates what it read, and resuming it while something is read from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import (
    EvidenceError,
)
from orchestrator.guest.guest import Guest, State


@contextmanager
def paused(guest: Guest) -> Iterator[None]:
    """Pause a guest while the host evaluates what it read; the guest's memory stays readable.

    An idle guest on the exact clock keeps the host as busy as a working one. The guest resumes afterwards, also if a
    proof failed; after any other error it stays paused. A KVM guest is not paused, as its TSC is the host's and does
    not stop. Raises GuestError.
    """
    if guest.machine.timing == "kvm":
        yield
        return
    guest.pause()
    try:
        yield
    except EvidenceError:
        guest.resume()
        raise
    guest.resume()


@contextmanager
def resumed(guest: Guest) -> Iterator[None]:
    """Resume a guest that may be paused while something is read from it. Raises GuestError."""
    was_paused = guest.state is State.PAUSED
    if was_paused:
        guest.resume()
    yield
    if was_paused:
        guest.pause()
