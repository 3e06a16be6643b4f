# SPDX-License-Identifier: GPL-2.0-only
"""Guests in threads of their own that end together."""

from __future__ import annotations

import threading

from orchestrator.guest.guest import Guest


class Stopped(BaseException):
    """The run ends: raised in a boot that reports something. Not an error, and not to be caught as one."""


class Guests:
    """Guests in threads of their own that end together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guests: list[Guest] = []
        self._has_ended = False

    def watch(self, guest: Guest) -> None:
        """In a guest's thread, before it runs. Raises Stopped if the group has ended."""
        with self._lock:
            self._guests.append(guest)
        self.check()

    def check(self) -> None:
        """Raise Stopped if the group has ended."""
        if self._has_ended:
            raise Stopped

    def end(self) -> None:
        """End all of them, from any thread, whatever their threads wait for; none can start afterwards."""
        with self._lock:
            self._has_ended = True
            guests = list(self._guests)
        for guest in guests:
            guest.abort()
