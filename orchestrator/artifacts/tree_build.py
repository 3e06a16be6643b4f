# SPDX-License-Identifier: GPL-2.0-only
"""A kernel built in its source tree, at whatever revision that is: what did not change is not built again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from orchestrator.artifacts.compiler import build_environment
from orchestrator.artifacts.diagnostics import error_lines
from orchestrator.artifacts.kernel_build import IDENTITY
from orchestrator.catalog.kconfig import read_config
from orchestrator.errors import BuildError, UsageError
from orchestrator.process import run

_CONFIGURE_LIMIT = 900.0
_BUILD_LIMIT = 12 * 3600.0
_ARCH = {"CONFIG_X86_32": "i386", "CONFIG_X86_64": "x86_64"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=[ -~]*")


def is_kernel_source(tree: Path) -> bool:
    """Whether a tree is a kernel's."""
    return (tree / "Kconfig").is_file() and (tree / "arch" / "x86" / "Makefile").is_file()


@dataclass(frozen=True)
class TreeBuild:
    """How a kernel is built in its tree: with this configuration, and these variables for make (``CC=gcc-12``)."""

    config: Path
    variables: Sequence[str] = ()

    @classmethod
    def of(cls, tree: Path, config: Path | None, variables: Sequence[str]) -> Self:
        """With this configuration, or the one in ``tree``. Raises UsageError where that is no kernel's, and either."""
        if (config is not None or variables) and not is_kernel_source(tree):
            what = f"--kconfig and --make are for a kernel's tree, and {tree} is none"
            raise UsageError(what, hint="leave them out")
        return cls((config or tree / ".config").absolute(), tuple(variables))

    def check(self) -> None:
        """Raise UsageError where the configuration is not there, or something is no variable."""
        for variable in self.variables:
            if not _VARIABLE.fullmatch(variable):
                raise UsageError(f"--make: found {variable!r}; expected NAME=VALUE", hint="such as --make CC=gcc-12")
        if not self.config.is_file():
            hint = "name one with --kconfig, or make one there: make defconfig"
            raise UsageError("there is no configuration of the kernel", where=str(self.config), hint=hint)
        if not self._arch:
            raise UsageError("this is no configuration of a kernel for x86", where=str(self.config))

    @property
    def _arch(self) -> str:
        # One for i386 does not say that it is not for 64 bits: make has to.
        config = read_config(self.config)
        return next((arch for option, arch in _ARCH.items() if config.get(option) == "y"), "")

    def build(self, tree: Path, say: Callable[[str], None]) -> None:
        """Build bzImage and modules. Raises BuildError with the compiler's words."""
        (tree / ".config").write_bytes(self.config.read_bytes())
        self._make(tree, ["olddefconfig"], _CONFIGURE_LIMIT)
        say(f"building the kernel in {tree}")
        self._make(tree, [f"-j{len(os.sched_getaffinity(0))}", "bzImage", "modules"], _BUILD_LIMIT)

    def _make(self, tree: Path, what: Sequence[str], time_limit: float) -> None:
        command = ["make", "-C", str(tree), f"ARCH={self._arch}", *self.variables, *what]
        finished = run(command, time_limit=time_limit, environment={**build_environment(), **IDENTITY})
        if finished.status != 0:
            words = error_lines(finished.stdout + finished.stderr)
            raise BuildError("the kernel does not build", where=str(tree), detail=words)
