# SPDX-License-Identifier: GPL-2.0-only
"""What a relocatable object holds: its functions and variables, what they refer to, and its compiler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from orchestrator.catalog.kernels import Arch
from orchestrator.elf import DAMAGED
from orchestrator.errors import ConfigError

_LARGEST = 16 << 20
_LARGEST_VARIABLE = 4096
"""Bytes of a variable that are searched for pointers."""
_ARCHITECTURES: Mapping[str, Arch] = {"EM_386": "i386", "EM_X86_64": "x86_64"}


@dataclass(frozen=True)
class Function:
    """A function's code, and the names that relocations put into it, by their offset in bytes."""

    name: str
    code: bytes
    references: Mapping[int, str]


@dataclass(frozen=True)
class Place:
    """A place in a section, by its offset in bytes."""

    section: str
    at: int


@dataclass(frozen=True)
class Variable:
    """A variable and its size in bytes."""

    name: str
    place: Place
    size: int


@dataclass(frozen=True)
class ObjectFile:
    """A relocatable object. ``pointers`` are those that relocations put into the sections of variables."""

    arch: Arch
    compiler: str
    functions: Mapping[str, Function]
    variables: Sequence[Variable]
    sections: Mapping[str, bytes]
    pointers: Mapping[Place, Place]

    def text(self, place: Place) -> bytes:
        """The string at a place, without its end; empty where there is none."""
        content = self.sections.get(place.section, b"")
        return content[place.at :].split(b"\0")[0] if 0 <= place.at < len(content) else b""

    def pointed(self, variable: Variable) -> Sequence[Place]:
        """The targets of the pointers in a variable, in order."""
        start = variable.place.at
        inside = (
            Place(variable.place.section, at) for at in range(start, start + min(variable.size, _LARGEST_VARIABLE))
        )
        return [self.pointers[place] for place in inside if place in self.pointers]


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
    functions, variables = {}, []
    for symbol in table.iter_symbols():
        index = symbol["st_shndx"]
        if symbol["st_info"]["type"] == "STT_OBJECT" and isinstance(index, int):
            place = Place(elf.get_section(index).name, symbol["st_value"])
            variables.append(Variable(symbol.name, place, symbol["st_size"]))
        if symbol["st_info"]["type"] == "STT_FUNC" and isinstance(index, int):
            start, size = symbol["st_value"], symbol["st_size"]
            code = elf.get_section(index).data()[start : start + size]
            inside = {at - start: name for at, name in references.get(index, {}).items() if start <= at < start + size}
            functions[symbol.name] = Function(symbol.name, code, inside)
    comment = elf.get_section_by_name(".comment")
    compiler = comment.data().split(b"\0")[0] or comment.data().strip(b"\0").split(b"\0")[0] if comment else b""
    sections = {section.name: section.data() for section in elf.iter_sections() if section["sh_type"] == "SHT_PROGBITS"}
    return ObjectFile(
        arch,
        compiler.decode("ascii", errors="replace")[:120],
        functions,
        variables,
        sections,
        dict(_pointers(elf, table)),
    )


def _pointers(elf: Any, table: SymbolTableSection) -> Iterator[tuple[Place, Place]]:
    """Pointers in the sections that are written; the offset is in the relocation (RELA), or where it is to be put."""
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection):
            continue
        home = elf.get_section(section["sh_info"])
        if home["sh_type"] != "SHT_PROGBITS" or not home["sh_flags"] & SH_FLAGS.SHF_WRITE:
            continue
        content = home.data()
        for relocation in section.iter_relocations():
            at = relocation["r_offset"]
            symbol = table.get_symbol(relocation["r_info_sym"])
            index = symbol["st_shndx"]
            if not isinstance(index, int):
                continue
            stored = int.from_bytes(content[at : at + 4], "little", signed=True)
            beyond = relocation["r_addend"] if section.is_RELA() else stored
            yield Place(home.name, at), Place(elf.get_section(index).name, symbol["st_value"] + beyond)


def _references(section: RelocationSection, table: SymbolTableSection, elf: Any) -> dict[int, str]:
    found = {}
    for relocation in section.iter_relocations():
        symbol = table.get_symbol(relocation["r_info_sym"])
        named = symbol.name or elf.get_section(symbol["st_shndx"]).name
        found[relocation["r_offset"]] = named
    return found
