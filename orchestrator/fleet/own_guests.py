# SPDX-License-Identifier: GPL-2.0-only
"""The guests in which the client counts for itself: they end with the run, as those of its workers do."""

from __future__ import annotations

import threading

from orchestrator.guest.guest import Guest
from orchestrator.run.local_crew import Stopped


class OwnGuests:
    """The client's guests, each in a thread of the link's, which the interpreter waits for when it ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: list[Guest] = []
        self._has_ended = False

    def watch(self, guest: Guest) -> None:
        """In a guest's thread, before it runs. Raises Stopped where the run has ended."""
        with self._lock:
            self._guests.append(guest)
            has_ended = self._has_ended
        if has_ended:
            raise Stopped

    def end(self) -> None:
        """End all of them; none begins any more."""
        with self._lock:
            self._has_ended = True
            guests = list(self._guests)
        for guest in guests:
            guest.abort()
