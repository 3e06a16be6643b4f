# SPDX-License-Identifier: GPL-2.0-only
"""Users' files that an experiment names: shared libraries, built modules, workloads."""

from __future__ import annotations

import re
import shlex
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

from elftools.common.exceptions import ELFError

from orchestrator.arch import OF_MACHINE, Arch
from orchestrator.errors import ConfigError
from orchestrator.paths import user_path
from orchestrator.program import PROGRAM

_NOT_BUILT = (
    f"it is text: if it is C, rename it to NAME.c and the lab builds it, or run {PROGRAM} build module ./NAME.c"
)
_PACKED = {b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ": ".xz", b"\x1f\x8b": ".gz"}
"""Suffixes of compressed files by their first bytes."""

_UNPACK = {".zst": "zstd -dk", ".xz": "unxz -k", ".gz": "gunzip -k"}


def is_packed(path: Path) -> bool:
    """Whether a file's suffix is that of a compressed one."""
    return path.suffix in _UNPACK


def unpacking(path: Path) -> str:
    """The command that unpacks a compressed file."""
    return f"{_UNPACK[path.suffix]} {shlex.quote(str(path))}"


def _elf(stream: BinaryIO) -> Any:
    from elftools.elf.elffile import ELFFile  # imported late: slow, and most commands do without

    return ELFFile(stream)


def named_modinfo(file: Path) -> Mapping[str, str]:
    """The module information of a file with a module's name. Raises ConfigError for any other."""
    info = modinfo(file)
    if not re.fullmatch(r"[A-Za-z0-9_]{1,55}", info.get("name", "")):
        is_object = header(file, "e_type") == "ET_REL"
        kind = "an object file without a module's name" if is_object else "a program or a library"
        raise ConfigError(f"not a kernel module, but {kind}", where=str(file))
    return info


def modinfo(file: Path) -> dict[str, str]:
    """Key-value pairs in the ``.modinfo`` section of a module, the last of each key. Raises ConfigError."""
    try:
        if file.stat().st_size > LARGEST:
            raise ConfigError(f"is larger than {LARGEST >> 20} MiB", where=str(file))
        with file.open("rb") as stream:
            section = _elf(stream).get_section_by_name(".modinfo")
            content = section.data() if section is not None else b""
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except DAMAGED:
        raise _no_module(file) from None
    pairs = (entry.decode("ascii", errors="replace").partition("=") for entry in content.split(b"\0") if entry)
    return {key: value for key, _, value in pairs}


def header(file: Path, field: str) -> str:
    """A field of an ELF file's header, such as ``e_machine``."""
    with file.open("rb") as stream:
        return str(_elf(stream)[field])


def _no_module(file: Path) -> ConfigError:
    with file.open("rb") as stream:
        begin = stream.read(512)
    what, hint = "not a kernel module", ""
    if not begin:
        what = "not a kernel module: the file is empty"
    elif begin.startswith(b"\x7fELF"):
        what, hint = "not a kernel module: the file is damaged or incomplete", "copy or build it again"
    elif packed := next((suffix for magic, suffix in _PACKED.items() if begin.startswith(magic)), ""):
        what = "not a kernel module, but a compressed file"
        named = file.with_name(file.name + packed)
        hint = f"unpack it: mv {shlex.quote(str(file))} {shlex.quote(str(named))} && {unpacking(named)}"
    elif begin.isascii() and b"\0" not in begin:
        hint = _NOT_BUILT
    return ConfigError(what, where=str(file), hint=hint)


LARGEST = 64 << 20
"""Bytes; it must fit into a guest's memory, which also holds the root file system."""


class UserElf(NamedTuple):
    """A loadable x86 ELF file: ``is_shared`` if position-independent, ``has_loader`` if it names a dynamic loader."""

    arch: Arch
    is_shared: bool
    has_loader: bool


def read_user_elf(path: Path, name: str, expected: str) -> UserElf:
    """Read an ELF file's headers. Raises ConfigError, which says what was ``expected``, for any other file."""
    try:
        if path.stat().st_size > LARGEST:
            raise ConfigError(f"found {name!r}; it is larger than {LARGEST >> 20} MiB")
        with path.open("rb") as file:
            elf = _elf(file)
            machine, kind = elf["e_machine"], elf["e_type"]
            segments = {segment["p_type"] for segment in elf.iter_segments()}
    except OSError as error:
        raise ConfigError(f"found {name!r}; it cannot be read: {error.strerror}") from None
    except DAMAGED:
        raise ConfigError(f"found {name!r}; expected {expected}") from None
    if machine not in OF_MACHINE or kind not in ("ET_EXEC", "ET_DYN") or "PT_LOAD" not in segments:
        raise ConfigError(f"found {name!r}; expected {expected}")
    return UserElf(OF_MACHINE[machine], kind == "ET_DYN", "PT_INTERP" in segments)


LIBRARY_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,62}\.so(?:\.[0-9][A-Za-z0-9.]{0,14})?"
"""A pattern for ``libc.so.6``; it does not match ``program``, the other file of program points."""

_EXPECTED = "a C file (.c) or a shared x86 library (.so)"


@dataclass(frozen=True)
class UserLibrary:
    """A library by its ``name`` in probe points; ``file``, which may be C, is None for a library of the image."""

    name: str
    file: Path | None
    arch: Arch | None

    @property
    def is_source(self) -> bool:
        return self.file is not None and self.file.suffix == ".c"

    def unsupported_reason(self, arch: Arch) -> str | None:
        if self.arch not in (None, arch):
            return f"{self.name} is a library for {self.arch}, and the kernel is for {arch}"
        return None


@lru_cache(maxsize=64)
def find_library(entry: str) -> UserLibrary:
    """The library of an experiment's entry, a name or a path with a slash. Raises ConfigError."""
    if "/" not in entry:
        return UserLibrary(_name(entry, entry), None, None)
    path = _existing(entry)
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


@dataclass(frozen=True)
class UserWorkload:
    """A C file with ``workload()``, compiled for the guest (``arch`` is None), or a program.

    One that ``has_loader`` needs shared libraries.
    """

    file: Path
    kind: Literal["function", "program"]
    arch: Arch | None
    has_loader: bool = False

    def unsupported_reason(self, arch: Arch) -> str | None:
        if self.arch == "x86_64" and arch == "i386":
            return f"{self.file.name} is a 64-bit program, and the kernel is 32-bit"
        return None


@lru_cache(maxsize=64)
def find_workload(name: str, *, is_program: bool = False) -> UserWorkload:
    """The workload at a path; with ``is_program`` a program, which may need shared libraries.

    Raises ConfigError for a file that is missing or unusable.
    """
    path = _existing(name)
    if path.suffix == ".c":
        if not is_program:
            return UserWorkload(path, "function", None)
        raise ConfigError(f"found {name!r}; expected a program: compile it, gcc -static -o {path.stem} {path.name}")
    elf = read_user_elf(path, name, "an x86 program" if is_program else "a C file (.c) or a static x86 program")
    if elf.has_loader and not is_program:
        raise ConfigError(f"found {name!r}; it needs shared libraries, which guests lack: link it with -static")
    return UserWorkload(path, "program", elf.arch, elf.has_loader)


def _existing(name: str) -> Path:
    path = user_path(name)
    if not path.is_file():
        raise ConfigError(f"found {name!r}; this file does not exist")
    return path


DAMAGED = (
    *(ELFError, ValueError, LookupError, TypeError, AttributeError, OverflowError, MemoryError),
    *(struct.error, zlib.error),
)
"""The errors of pyelftools and struct for files that contradict their headers."""
