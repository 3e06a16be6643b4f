# SPDX-License-Identifier: GPL-2.0-only
"""What a module that the user has built says of itself: whether it is one, and its name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from orchestrator.catalog.user_probe import unpacking
from orchestrator.errors import ConfigError
from orchestrator.program import PROGRAM

_NAME = re.compile(r"[A-Za-z0-9_]{1,55}")
_LARGEST = 64 << 20
_NOT_BUILT = f"it is text: name C code NAME.c, and the lab builds it; or build it first: {PROGRAM} kmod build ./NAME.c"
_PACKED = {b"\x28\xb5\x2f\xfd": ".zst", b"\xfd7zXZ": ".xz", b"\x1f\x8b": ".gz"}
"""How packed files begin, and what they are called."""


def named_modinfo(file: Path) -> Mapping[str, str]:
    """What ``modinfo`` returns, of a file that says a module's name. Raises ConfigError for any other."""
    info = modinfo(file)
    if not _NAME.fullmatch(info.get("name", "")):
        raise ConfigError(f"is no kernel module: it is {_kind(file)}", where=str(file))
    return info


def modinfo(file: Path) -> dict[str, str]:
    """What a module says of itself, as ``modinfo`` prints it; the last value of a key. Raises ConfigError."""
    from elftools.elf.elffile import ELFFile

    from orchestrator.elf import DAMAGED

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


def header(file: Path, field: str) -> str:
    """A field of an ELF file's header, such as ``e_machine``."""
    from elftools.elf.elffile import ELFFile

    with file.open("rb") as stream:
        return str(ELFFile(stream)[field])


def _kind(file: Path) -> str:
    """What an ELF file is that has no name of a module."""
    is_object = header(file, "e_type") == "ET_REL"
    return "an object file that does not say a module's name" if is_object else "a program or a library"


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
