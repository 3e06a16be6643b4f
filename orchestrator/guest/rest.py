# SPDX-License-Identifier: GPL-2.0-only
"""A guest that waits for the host without using its processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.guest.guest import Guest


@contextmanager
def at_rest(guest: Guest) -> Iterator[None]:
    """Pause a guest while the host works on what was read from it; its memory can be read meanwhile.

    An idle guest on the exact clock keeps the host as busy as a working one. After an error the guest stays paused: it
    is not used again. A KVM guest is not paused, since its TSC, the host CPU's, would go on. Raises GuestError.
    """
    if guest.machine.timing == "kvm":
        yield
        return
    guest.pause()
    yield
    guest.resume()
