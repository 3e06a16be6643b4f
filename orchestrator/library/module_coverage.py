# SPDX-License-Identifier: GPL-2.0-only
"""What counts the code that a guest executes is told of the guest's modules, and of its end."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from orchestrator.artifacts.modules import Module


class ModuleCoverage(Protocol):
    """Counts what one life of a guest executes of the modules that are loaded into it."""

    def loading(self, module: Module, source: Path) -> AbstractContextManager[None]:
        """The block loads a module; ``source`` is the file or folder that it was made from."""

    def unloaded(self, name: str) -> None:
        """A module has been unloaded."""

    def end(self) -> None:
        """The guest has ended."""
