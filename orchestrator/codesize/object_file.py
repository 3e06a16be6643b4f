# SPDX-License-Identifier: GPL-2.0-only
"""What a relocatable object holds: its functions, what they refer to, the sizes of its sections, its compiler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from orchestrator.catalog.kernels import Arch
from orchestrator.elf import DAMAGED
from orchestrator.errors import ConfigError

_LARGEST = 16 << 20
_ARCHITECTURES: Mapping[str, Arch] = {"EM_386": "i386", "EM_X86_64": "x86_64"}


@dataclass(frozen=True)
class Function:
    """A function's code, and the names that relocations put into it, by their offset in bytes."""

    name: str
    code: bytes
    references: Mapping[int, str]


@dataclass(frozen=True)
class ObjectFile:
    """A relocatable object; section sizes in bytes."""

    arch: Arch
    compiler: str
    functions: Mapping[str, Function]
    sections: Mapping[str, int]


def read_object(file: Path) -> ObjectFile:
    """Read a .ko or .o. Raises ConfigError for anything else."""
    try:
        if file.stat().st_size > _LARGEST:
            raise ConfigError(f"is larger than {_LARGEST >> 20} MiB", where=str(file))
        with file.open("rb") as stream:
            return _read(ELFFile(stream), file)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except DAMAGED:
        raise ConfigError("is no object file that can be read", where=str(file)) from None


def _read(elf: Any, file: Path) -> ObjectFile:
    arch = _ARCHITECTURES.get(elf["e_machine"])
    table = elf.get_section_by_name(".symtab")
    if arch is None or elf["e_type"] != "ET_REL" or not isinstance(table, SymbolTableSection):
        raise ConfigError("is no relocatable object of x86", where=str(file))
    references = {
        section["sh_info"]: _references(section, table, elf)
        for section in elf.iter_sections()
        if isinstance(section, RelocationSection)
    }
    functions = {}
    for symbol in table.iter_symbols():
        index = symbol["st_shndx"]
        if symbol["st_info"]["type"] == "STT_FUNC" and isinstance(index, int):
            start, size = symbol["st_value"], symbol["st_size"]
            code = elf.get_section(index).data()[start : start + size]
            inside = {at - start: name for at, name in references.get(index, {}).items() if start <= at < start + size}
            functions[symbol.name] = Function(symbol.name, code, inside)
    comment = elf.get_section_by_name(".comment")
    compiler = comment.data().split(b"\0")[0] or comment.data().strip(b"\0").split(b"\0")[0] if comment else b""
    sizes = {section.name: section["sh_size"] for section in elf.iter_sections() if section.name}
    return ObjectFile(arch, compiler.decode("ascii", errors="replace")[:120], functions, sizes)


def _references(section: RelocationSection, table: SymbolTableSection, elf: Any) -> dict[int, str]:
    found = {}
    for relocation in section.iter_relocations():
        symbol = table.get_symbol(relocation["r_info_sym"])
        named = symbol.name or elf.get_section(symbol["st_shndx"]).name
        found[relocation["r_offset"]] = named
    return found
