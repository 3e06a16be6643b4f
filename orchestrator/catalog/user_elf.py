# SPDX-License-Identifier: GPL-2.0-only
"""What the headers of a user's ELF file say: which CPU it is for, and how it is linked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from orchestrator.catalog.kernels import Arch
from orchestrator.errors import ConfigError

_MACHINES: dict[str, Arch] = {"EM_386": "i386", "EM_X86_64": "x86_64"}
LARGEST = 64 << 20
"""Bytes; it must fit into a guest's memory, which also holds the root file system."""


@dataclass(frozen=True)
class UserElf:
    """An x86 file that can be loaded: ``is_shared`` without fixed addresses, ``has_loader`` where it names one."""

    arch: Arch
    is_shared: bool
    has_loader: bool


def read_user_elf(path: Path, name: str, expected: str) -> UserElf:
    """Read the headers. Raises ConfigError, with what was ``expected``, for any other file.

    ``name`` is the path as the user wrote it.
    """
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
        raise ConfigError(f"found {name!r}; expected {expected}") from None
    if machine not in _MACHINES or kind not in ("ET_EXEC", "ET_DYN") or "PT_LOAD" not in segments:
        raise ConfigError(f"found {name!r}; expected {expected}")
    return UserElf(_MACHINES[machine], kind == "ET_DYN", "PT_INTERP" in segments)
