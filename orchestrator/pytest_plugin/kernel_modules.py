# SPDX-License-Identifier: GPL-2.0-only
"""The modules that a test loads, and that are unloaded after it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.artifacts.module_source import Value
from orchestrator.guest.life import State
from orchestrator.probes.symbols import ModuleMemory
from orchestrator.pytest_plugin.loaded_module import LoadedModule
from orchestrator.pytest_plugin.tested_guest import TestedGuest

_NOTHING: Mapping[str, str | int] = MappingProxyType({})
_NO_VALUES: Mapping[str, Value] = MappingProxyType({})


class KernelModules:
    """Builds and loads modules. Made by the fixture ``kmod``."""

    def __init__(self, guest: TestedGuest) -> None:
        self._guest = guest
        self._loaded: list[LoadedModule] = []

    def __call__(
        self,
        path: str | Path,
        parameters: Mapping[str, str | int] = _NOTHING,
        *,
        name: str | None = None,
        values: Mapping[str, Value] = _NO_VALUES,
    ) -> LoadedModule:
        """Build and load a module, as ``load`` of the guest does."""
        module = self._guest.load(path, parameters, name=name, values=values)
        self._loaded.append(module)
        return module

    def unload_all(self) -> None:
        """Unload what is still there, the last first. Raises CommandFailed for a module that is in use.

        In a guest that is gone, or whose kernel has reported trouble, nothing is unloaded: no other test gets it.
        """
        if self._guest.state is not State.READY or self._guest.pid is None or self._guest.has_reported():
            return
        there = ModuleMemory.all_of(self._guest)
        for module in reversed(self._loaded):
            for name in (module.name, *reversed(module.needed)):
                if name in there:
                    self._guest.unload(name)
