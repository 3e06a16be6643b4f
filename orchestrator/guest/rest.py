# SPDX-License-Identifier: GPL-2.0-only
"""A guest that waits for the host without using its processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest


@contextmanager
def at_rest(guest: Guest) -> Iterator[None]:
    """Pause a guest while the host works on what was read from it; its memory can be read meanwhile.

    An idle guest on the exact clock keeps the host as busy as a working one. It goes on when a proof has failed, too;
    after any other error it stays paused. A KVM guest is not paused, since its TSC, the host CPU's, would go on.
    Raises GuestError.
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
