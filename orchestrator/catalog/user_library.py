# SPDX-License-Identifier: GPL-2.0-only
"""A shared library that a workload is linked with: one of the guest's image by its name, or a user's by its path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from orchestrator.catalog.kernels import Arch
from orchestrator.catalog.user_elf import read_user_elf
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path

LIBRARY_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,62}\.so(?:\.[0-9][A-Za-z0-9.]{0,14})?"
"""A pattern: ``libc.so.6``. No name of a program point's other file, ``program``, fits it."""

_EXPECTED = "a C file (.c) or a shared x86 library (.so)"


@dataclass(frozen=True)
class UserLibrary:
    """A library by its ``name`` in probe points. ``file`` is None for the image's, ``arch`` where it is not known.

    A C file is compiled for the guest: ``libmine.c`` becomes ``libmine.so``.
    """

    name: str
    file: Path | None
    arch: Arch | None

    @property
    def is_source(self) -> bool:
        """Whether it is to be compiled."""
        return self.file is not None and self.file.suffix == ".c"

    def unsupported_reason(self, arch: Arch) -> str | None:
        """Why a program of ``arch`` cannot be linked with it; None when it can."""
        if self.arch not in (None, arch):
            return f"{self.name} is a library for {self.arch}, and the kernel is for {arch}"
        return None


@lru_cache(maxsize=64)
def find_library(entry: str) -> UserLibrary:
    """The library of an experiment's entry: a path where it has a slash in it. Raises ConfigError for none."""
    if "/" not in entry:
        return UserLibrary(_name(entry, entry), None, None)
    path = user_path(entry)
    if not path.is_file():
        raise ConfigError(f"found {entry!r}; there is no such file")
    if path.suffix == ".c":
        return UserLibrary(_name(f"{path.stem}.so", entry), path, None)
    elf = read_user_elf(path, entry, _EXPECTED)
    if not elf.is_shared:
        raise ConfigError(f"found {entry!r}; it is a program, not a library: expected {_EXPECTED}")
    return UserLibrary(_name(path.name, entry), path, elf.arch)


def _name(name: str, entry: str) -> str:
    if re.fullmatch(LIBRARY_NAME, name) is None:
        raise ConfigError(
            f"found {entry!r}; expected a library of the image, such as libc.so.6, or a path: ./libmine.c, ./libmine.so"
        )
    return name
