# SPDX-License-Identifier: GPL-2.0-only
"""A user's workload, named by the path of its C file or of a static program."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from orchestrator.catalog.kernels import Arch
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path

_MACHINES: dict[str, Arch] = {"EM_386": "i386", "EM_X86_64": "x86_64"}
LARGEST = 64 << 20
"""Bytes; it must fit into a guest's memory, which also holds the root file system."""


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
    from elftools.elf.elffile import ELFFile

    from orchestrator.elf import DAMAGED

    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"found {name!r}; it is larger than {LARGEST >> 20} MiB")
        with path.open("rb") as file:
            elf = ELFFile(file)
            machine, kind = elf["e_machine"], elf["e_type"]
            segments = {segment["p_type"] for segment in elf.iter_segments()}
    except OSError as error:
        raise ConfigError(f"found {name!r}; it cannot be read: {error.strerror}") from None
    except DAMAGED:
        raise ConfigError(f"found {name!r}; expected a C file (.c) or a static x86 program") from None
    if machine not in _MACHINES or kind not in ("ET_EXEC", "ET_DYN") or "PT_LOAD" not in segments:
        raise ConfigError(f"found {name!r}; expected a C file (.c) or a static x86 program")
    if "PT_INTERP" in segments:
        raise ConfigError(f"found {name!r}; it needs shared libraries, which a guest has not: link it with -static")
    return _MACHINES[machine]
