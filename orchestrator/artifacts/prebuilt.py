# SPDX-License-Identifier: GPL-2.0-only
"""A module that the user has built: its name, and whether a kernel would load it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from elftools.elf.elffile import ELFFile

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module
from orchestrator.elf import DAMAGED
from orchestrator.errors import ConfigError, UnsupportedError
from orchestrator.program import PROGRAM

_NAME = re.compile(r"[A-Za-z0-9_]{1,55}")
_LARGEST = 64 << 20
_NOT_BUILT = f"it is text: name C code NAME.c, and the lab builds it; or build it first: {PROGRAM} kmod build ./NAME.c"


def prebuilt(file: Path, kernel: Kernel) -> Module:
    """The module in a .ko file. Raises UnsupportedError for one of another kernel, ConfigError for no module."""
    info = modinfo(file)
    name = info.get("name", "")
    if not _NAME.fullmatch(name):
        raise ConfigError("is no kernel module: it does not say its name", where=str(file))
    built_for = info.get("vermagic", "").split(" ")[0]
    if built_for != kernel.release:
        raise UnsupportedError(
            f"{file.name} was built for kernel {built_for[:80] or 'unknown'}, and this one is {kernel.release}",
            hint=f"give its source, ./NAME.c, and the lab builds it for {kernel.spec.name}; "
            f"or build it first: {PROGRAM} kmod build ./NAME.c --kernel {kernel.spec.name} --out .",
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
        raise ConfigError("is no kernel module", where=str(file), hint=_NOT_BUILT if _is_text(file) else "") from None
    pairs = (entry.decode("ascii", errors="replace").partition("=") for entry in content.split(b"\0") if entry)
    return {key: value for key, _, value in pairs}


def _is_text(file: Path) -> bool:
    """Whether a file begins like a text, such as C code that nobody has compiled."""
    with file.open("rb") as stream:
        begin = stream.read(512)
    return begin.isascii() and b"\0" not in begin
