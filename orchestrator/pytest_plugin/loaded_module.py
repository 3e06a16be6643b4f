# SPDX-License-Identifier: GPL-2.0-only
"""A module that a test has loaded into its guest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.guest.guest import Guest


@dataclass(frozen=True)
class LoadedModule:
    """A loaded module: its name in the kernel, its .ko on the host, and what was loaded before because it needs it."""

    guest: Guest
    """The guest that has it."""
    name: str
    """Its name in the kernel, as ``/proc/modules`` has it."""
    file: Path
    """Its .ko on the host."""
    needed: tuple[str, ...] = ()
    """The names of the modules that were loaded before, in order."""

    def parameter(self, name: str) -> str:
        """A parameter's value now. Raises GuestError for one that is not there or cannot be read."""
        return self.guest.get(self._file(name)).decode("utf-8", errors="replace").removesuffix("\n")

    def set_parameter(self, name: str, value: str | int) -> None:
        """Change a parameter. Raises GuestError where the module refuses the value."""
        self.guest.put(str(value).encode(), self._file(name))

    def _file(self, name: str) -> str:
        return f"/sys/module/{self.name}/parameters/{name}"
