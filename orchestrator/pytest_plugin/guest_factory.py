# SPDX-License-Identifier: GPL-2.0-only
"""The fixture ``guest_factory``: guests of one test that run at the same time, on a network of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.initramfs import disk_drivers
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.errors import UsageError
from orchestrator.guest.hub import Hub
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.pytest_plugin.guest_pool import GuestPool
from orchestrator.pytest_plugin.marks import checked
from orchestrator.run.machines import machine_for

_NEEDED = ("CONFIG_VIRTIO_NET", "CONFIG_INET")


class GuestFactory:
    """Boots guests. Made by the fixture ``guest_factory``.

    ``arguments`` are those of the test's mark; ``begin`` is called with each guest.
    """

    def __init__(
        self,
        workshop: BuildContext,
        pool: GuestPool,
        arguments: Mapping[str, Any],
        begin: Callable[[TestedGuest], None],
    ) -> None:
        self._workshop, self._pool = workshop, pool
        self._arguments, self._begin = arguments, begin
        self._hub = Hub()
        self.guests: list[TestedGuest] = []

    def __call__(self, **arguments: Any) -> TestedGuest:
        """Boot another guest; ``arguments`` are those of the mark, and override its own.

        All guests of a test run at the same time, on the plain clock, on a network of their own. ``address`` is a
        guest's IPv4 address there. Raises UsageError for an impossible guest, GuestError if it does not boot.
        """
        spec = checked({**self._arguments, **arguments})
        if spec.timing == "instructions":
            raise UsageError("guests on a network run on the plain clock: timing 'auto', 'tcg' or 'kvm'")
        kernel = ready_kernel(self._workshop, spec.kernel_spec)
        lacking = [option for option in _NEEDED if kernel.config.get(option, "n") not in ("y", "m")]
        if lacking:
            raise UsageError(f"kernel '{kernel.spec.name}' does not support a network: it lacks {', '.join(lacking)}")
        lan = self._hub.next_lan()
        drivers = disk_drivers(self._workshop, kernel)
        machine = replace(machine_for(self._workshop, kernel, spec), lan=lan, disk_drivers=drivers)
        guest = self._pool.new(machine, kernel, fresh=True)
        self.guests.append(guest)
        self._begin(guest)
        return guest

    def close(self) -> None:
        for guest in self.guests:
            self._pool.retire(guest)
        self._hub.close()
