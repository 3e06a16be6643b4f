# SPDX-License-Identifier: GPL-2.0-only
"""A user's workload, named by the path of its C file or of a static program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from orchestrator.catalog.kernels import Arch
from orchestrator.catalog.user_elf import read_user_elf
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path


@dataclass(frozen=True)
class UserWorkload:
    """A C file that defines ``workload()`` (``arch`` None: compiled for the guest), or a whole static program."""

    file: Path
    kind: Literal["function", "program"]
    arch: Arch | None

    def unsupported_reason(self, arch: Arch) -> str | None:
        """Why it cannot run on a kernel of ``arch``; None when it can."""
        if self.arch == "x86_64" and arch == "i386":
            return f"{self.file.name} is a 64-bit program, and the kernel is 32-bit"
        return None


@lru_cache(maxsize=64)
def find_workload(name: str) -> UserWorkload:
    """Return the workload at a path. Raises ConfigError for a file that is missing or cannot be run."""
    path = user_path(name)
    if not path.is_file():
        raise ConfigError(f"found {name!r}; there is no such file")
    if path.suffix == ".c":
        return UserWorkload(path, "function", None)
    return UserWorkload(path, "program", _architecture(path, name))


def _architecture(path: Path, name: str) -> Arch:
    elf = read_user_elf(path, name, "a C file (.c) or a static x86 program")
    if elf.has_loader:
        raise ConfigError(f"found {name!r}; it needs shared libraries, which a guest has not: link it with -static")
    return elf.arch
