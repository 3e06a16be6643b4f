# SPDX-License-Identifier: GPL-2.0-only
"""The guests of a test session: started when a test first needs one, shared while they are sound, killed at its end."""

from __future__ import annotations

import contextlib
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest, State
from orchestrator.guest.machine import Machine
from orchestrator.run.started_guest import started

_SHARED_MAX = 4
"""Guests kept for further tests; each holds its memory on the host while it idles."""

_ANSWER_LIMIT = 5.0
"""Host seconds for a shared guest to run ``true``, which takes some milliseconds."""


class GuestPool:
    """Starts guests from the calling thread. Their logs go into ``directory``."""

    def __init__(self, context: BuildContext, directory: Path) -> None:
        self._context = context
        self._directory = directory
        self._shared: dict[Machine, Guest] = {}  # the most recently used is the last
        self._fresh: list[Guest] = []
        self._started = 0

    def shared(self, machine: Machine) -> Guest:
        """A guest of this machine that several tests use. Raises GuestError when a new one does not boot."""
        guest = self._shared.pop(machine, None)
        if guest is not None and not _is_sound(guest):
            guest.kill()
            guest = None
        if guest is None:
            while len(self._shared) >= _SHARED_MAX:
                self._shared.pop(next(iter(self._shared))).kill()
            guest = started(self._context, machine, self._directory, self._name(machine))
        self._shared[machine] = guest
        return guest

    def fresh(self, machine: Machine) -> Guest:
        """A newly booted guest of this machine. Raises GuestError when it does not boot."""
        guest = started(self._context, machine, self._directory, self._name(machine), fresh=True)
        self._fresh.append(guest)
        return guest

    def rest(self, guest: Guest) -> None:
        """Pause a shared guest until the next test: on the exact clock an idle guest keeps a core busy."""
        # A guest that cannot be paused is replaced when the next test needs it.
        with contextlib.suppress(GuestError):
            guest.pause()

    def retire(self, guest: Guest) -> None:
        """Kill a guest; no other test gets it."""
        guest.kill()
        self._shared = {machine: other for machine, other in self._shared.items() if other is not guest}
        self._fresh = [other for other in self._fresh if other is not guest]

    def close(self) -> None:
        """Kill all guests."""
        for guest in (*self._shared.values(), *self._fresh):
            guest.kill()
        self._shared, self._fresh = {}, []

    def _name(self, machine: Machine) -> str:
        self._started += 1
        return f"guest{self._started}-{machine.cpu.name}"


def _is_sound(guest: Guest) -> bool:
    """Whether a paused guest resumes and runs a command, and its kernel has reported no trouble."""
    try:
        if guest.state is State.PAUSED:
            guest.resume()
        return guest.console.trouble() is None and guest.run(["true"], time_limit=_ANSWER_LIMIT).status == 0
    except GuestError:
        return False
