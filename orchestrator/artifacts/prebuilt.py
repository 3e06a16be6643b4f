# SPDX-License-Identifier: GPL-2.0-only
"""A module that the user has built: its name, and whether a kernel would load it."""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path

from elftools.elf.elffile import ELFFile

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import source_name
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.user_probe import unpacking
from orchestrator.elf import DAMAGED
from orchestrator.errors import ConfigError, UnsupportedError
from orchestrator.program import PROGRAM

_NAME = re.compile(r"[A-Za-z0-9_]{1,55}")
_LARGEST = 64 << 20
_NOT_BUILT = f"it is text: name C code NAME.c, and the lab builds it; or build it first: {PROGRAM} kmod build ./NAME.c"
_MACHINES = {"EM_386": "i386", "EM_X86_64": "x86_64", "EM_AARCH64": "arm64", "EM_ARM": "arm", "EM_RISCV": "riscv"}
_PACKED = {b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ": ".xz", b"\x1f\x8b": ".gz"}
"""How packed files begin, and what they are called."""


def prebuilt(file: Path, kernel: Kernel) -> Module:
    """The module in a .ko file. Raises UnsupportedError for one of another kernel, ConfigError for no module."""
    info = modinfo(file)
    name = info.get("name", "")
    if not _NAME.fullmatch(name):
        raise ConfigError(f"is no kernel module: it is {_kind(file)}", where=str(file))
    machine = _MACHINES.get(_header(file, "e_machine"), "another processor")
    if machine != kernel.spec.arch:
        hint = f"name one that was built for {kernel.spec.arch}, or a kernel for {machine}"
        raise UnsupportedError(f"{file.name} is for {machine}, and this kernel is for {kernel.spec.arch}", hint=hint)
    built_for = info.get("vermagic", "").split(" ")[0]
    if built_for != kernel.release:
        source = f"./{source_name(file)}"
        raise UnsupportedError(
            f"{file.name} was built for kernel {built_for[:80] or 'unknown'}, and this one is {kernel.release}",
            hint=f"give its source, {source}, and the lab builds it for this kernel; "
            f"or build it first: {PROGRAM} kmod build {source} --kernel {kernel.spec.argument} --out .",
        )
    return Module(name, file, hashlib.sha256(file.read_bytes()).hexdigest(), None)


def modinfo(file: Path) -> dict[str, str]:
    """What a module says of itself, as ``modinfo`` prints it; the last value of a key. Raises ConfigError."""
    try:
        if file.stat().st_size > _LARGEST:
            raise ConfigError(f"is larger than {_LARGEST >> 20} MiB", where=str(file))
        with file.open("rb") as stream:
            section = ELFFile(stream).get_section_by_name(".modinfo")
            content = section.data() if section is not None else b""
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except DAMAGED:
        raise _no_module(file) from None
    pairs = (entry.decode("ascii", errors="replace").partition("=") for entry in content.split(b"\0") if entry)
    return {key: value for key, _, value in pairs}


def _kind(file: Path) -> str:
    """What an ELF file is that has no name of a module."""
    is_object = _header(file, "e_type") == "ET_REL"
    return "an object file that does not say a module's name" if is_object else "a program or a library"


def _header(file: Path, field: str) -> str:
    with file.open("rb") as stream:
        return str(ELFFile(stream)[field])


def _no_module(file: Path) -> ConfigError:
    """The error for a file that is no whole ELF file: what it seems to be, and what to do with it."""
    with file.open("rb") as stream:
        begin = stream.read(512)
    what, hint = "is no kernel module", ""
    if not begin:
        what = "is no kernel module: the file is empty"
    elif begin.startswith(b"\x7fELF"):
        what, hint = "is no kernel module: it is damaged, or not whole", "copy or build it again"
    elif packed := next((suffix for magic, suffix in _PACKED.items() if begin.startswith(magic)), ""):
        what = "is no kernel module, but a packed file"
        named = file.with_name(file.name + packed)
        hint = f"unpack it: mv {shlex.quote(str(file))} {shlex.quote(str(named))} && {unpacking(named)}"
    elif begin.isascii() and b"\0" not in begin:
        hint = _NOT_BUILT  # such as C code that nobody has compiled
    return ConfigError(what, where=str(file), hint=hint)
