# SPDX-License-Identifier: GPL-2.0-only
"""The guests of a test session: started when a test needs one, ended after it or, where shared, with its module."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest
from orchestrator.guest.life import State
from orchestrator.guest.machine import Lan, Machine
from orchestrator.pytest_plugin.tested_guest import TestedGuest
from orchestrator.run.started_guest import started

_SHARED_MAX = 4
"""Guests kept for further tests; each holds its memory on the host while it idles."""

_ANSWER_LIMIT = 5.0
"""Host seconds for a shared guest to run ``true``, which takes some milliseconds."""


@dataclass(frozen=True)
class Sharing:
    """Which tests share a guest: those of a ``module``, and apart from the others those that want a ``fresh`` one."""

    module: str
    fresh: bool


class GuestPool:
    """Starts guests from the calling thread. Their logs go into ``directory``."""

    def __init__(self, workshop: BuildContext, directory: Path) -> None:
        self._workshop = workshop
        self._directory = directory
        self._shared: dict[tuple[Sharing, Machine], TestedGuest] = {}  # the most recently used is the last
        self._own: list[TestedGuest] = []
        self._started = 0

    def clean(self, machine: Machine, kernel: Kernel) -> TestedGuest:
        """A guest of this machine that nothing has used before. Raises GuestError when it does not start."""
        return self._kept(self._start(machine), kernel)

    def booted(self, machine: Machine, kernel: Kernel) -> TestedGuest:
        """A newly booted guest of this machine. Raises GuestError when it does not boot."""
        return self._kept(self._boot(machine), kernel)

    def shared(self, machine: Machine, kernel: Kernel, sharing: Sharing) -> TestedGuest:
        """A guest of this machine that the tests of a module use. Raises GuestError when a new one does not start."""
        for key in [key for key in self._shared if key[0].module != sharing.module]:
            self._shared.pop(key).kill()
        guest = self._shared.pop((sharing, machine), None)
        if guest is not None and not _is_sound(guest):
            guest.kill()
            guest = None
        if guest is None:
            while len(self._shared) >= _SHARED_MAX:
                self._shared.pop(next(iter(self._shared))).kill()
            start = self._boot if sharing.fresh else self._start
            guest = self._tested(start(machine), kernel)
        self._shared[sharing, machine] = guest
        return guest

    def rest(self, guest: TestedGuest) -> None:
        """Pause a shared guest until the next test: on the exact clock an idle guest keeps a core busy."""
        # A guest that cannot be paused is replaced when the next test needs it.
        with contextlib.suppress(GuestError):
            guest.pause()

    def retire(self, guest: TestedGuest) -> None:
        """Kill a guest; no other test gets it."""
        guest.kill()
        self._shared = {key: other for key, other in self._shared.items() if other is not guest}
        self._own = [other for other in self._own if other is not guest]

    def close(self) -> None:
        """Kill all guests."""
        for guest in (*self._shared.values(), *self._own):
            guest.kill()
        self._shared, self._own = {}, []

    def _kept(self, running: Guest, kernel: Kernel) -> TestedGuest:
        guest = self._tested(running, kernel)
        self._own.append(guest)
        return guest

    def _tested(self, running: Guest, kernel: Kernel) -> TestedGuest:
        return TestedGuest(running, self._workshop, kernel, self._boot)

    def _boot(self, machine: Machine) -> Guest:
        guest = started(self._workshop, machine, self._directory, self._name(machine), fresh=True)
        if machine.lan is not None:
            try:
                _connect(guest, machine.lan)
            except BaseException:
                guest.kill()
                raise
        return guest

    def _start(self, machine: Machine) -> Guest:
        return started(self._workshop, machine, self._directory, self._name(machine))

    def _name(self, machine: Machine) -> str:
        self._started += 1
        return f"guest{self._started}-{machine.cpu.name}"


def _connect(guest: Guest, lan: Lan) -> None:
    """Give a guest its address on its private network, on the device that is there."""
    found = guest.succeed(["sh", "-c", 'grep -lx "$1" /sys/class/net/*/address', "sh", lan.mac]).text
    device = found.split("/")[4]
    guest.succeed(["ip", "addr", "add", f"{lan.address}/24", "dev", device])
    guest.succeed(["ip", "link", "set", device, "up"])


def _is_sound(guest: Guest) -> bool:
    """Whether a paused guest resumes and runs a command, and its kernel has reported no trouble."""
    try:
        if guest.state is State.PAUSED:
            guest.resume()
        if next(guest.console.reports(), None) is not None:
            return False
        return guest.run(["true"], time_limit=_ANSWER_LIMIT).status == 0
    except GuestError:
        return False
