# SPDX-License-Identifier: GPL-2.0-only
"""How does a test come by a module for its guest's kernel?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_source import ModuleSource, Value, check_parameters, render
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import BuildError

_ROGUES = Path(__file__).with_name("modules")


@dataclass(frozen=True)
class ModuleMaker:
    """Builds modules for one kernel. Raises BuildError when one does not build."""

    context: BuildContext
    kernel: Kernel

    def probe(self, template: str, symbol: str, offset: int) -> Module:
        """A probe module of the lab's own."""
        point = check_parameters({"symbol": symbol, "offset": offset})
        return replace(self.rendered(template, {}), parameters=point)

    def rendered(self, template: str, values: Mapping[str, Value]) -> Module:
        """A module of the lab's own, rendered with all these values."""
        return self.built(render(template, values))

    def rogue(self, name: str) -> Module:
        """A module of one file of ``tests/qemu/modules``."""
        files = {f"{name}.c": (_ROGUES / f"{name}.c").read_text(), "Kbuild": f"obj-m := {name}.o\n"}
        return self.built(ModuleSource(name, files))

    def built(self, source: ModuleSource) -> Module:
        """A module of any source."""
        (built,) = build_modules(self.context, self.kernel, [source])
        if isinstance(built, BuildError):
            raise built
        return built
