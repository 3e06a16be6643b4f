# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own modules that a guest needs before anything else, in the order of loading."""

from __future__ import annotations

import io
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from orchestrator.elf import DAMAGED
from orchestrator.errors import LabError

_LARGEST = 64 << 20
"""Bytes of a module; amdgpu.ko has 14 MB."""


def with_dependencies(modules: Path, wanted: Sequence[str]) -> list[Path]:
    """The files of the modules ``wanted`` and of all they depend on, each after what it depends on.

    ``modules`` is a kernel's ``lib/modules/RELEASE/kernel``. A module that is not there is built in.
    Dependencies are the modules' own word (``depends=`` in .modinfo): packages come without modules.dep.
    """
    return ordered({module_name(path.name): path for path in modules.rglob("*.ko*")}, wanted)


def ordered(files: Mapping[str, Path], wanted: Sequence[str]) -> list[Path]:
    """The same of modules whose ``files`` are given by their names."""
    found: list[Path] = []
    begun: set[Path] = set()

    def add(name: str) -> None:
        path = files.get(module_name(name))
        if path is None or path in begun:
            return
        begun.add(path)
        for dependency in module_info(path).get("depends", "").split(","):
            add(dependency)
        found.append(path)

    for name in wanted:
        add(name)
    return found


def module_info(path: Path) -> dict[str, str]:
    """A module's .modinfo: ``depends``, ``vermagic``, ``license`` and so on. Raises LabError for another file."""
    try:
        section = ELFFile(io.BytesIO(module_content(path))).get_section_by_name(".modinfo")
        if section is None:
            raise ELFError("it has no .modinfo")
        entries = section.data().decode(errors="replace").split("\0")
    except (OSError, *DAMAGED) as error:
        raise LabError(f"{path} is no kernel module ({error})") from None
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def module_content(path: Path) -> bytes:
    """A module's file, uncompressed where its name says that it is packed, as Debian's are since Linux 6.12.

    Raises OSError, and LabError for another packing than xz, a damaged one, and what is larger than any module.
    """
    content = path.read_bytes()
    if path.suffix != ".ko":
        if path.suffix != ".xz":
            raise LabError(f"{path} is packed in a way that is not known: only .ko.xz is")
        unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ)
        try:
            content = unpacking.decompress(content, _LARGEST)
        except lzma.LZMAError as error:
            raise LabError(f"{path} is no kernel module ({error})") from None
        if not unpacking.eof:
            raise LabError(f"{path} was cut, or is larger than {_LARGEST >> 20} MiB")
    return content


def unpacked_name(path: Path) -> str:
    """The name of a module's file that is not packed."""
    return path.name.removesuffix(".xz")


def module_name(text: str) -> str:
    """A module's name as the kernel lists it, from its file's name: without the suffixes, and with underscores."""
    return text.partition(".ko")[0].replace("-", "_")
