# SPDX-License-Identifier: GPL-2.0-only
"""The functions of a module's file in the form of a kernel's image, at invented addresses.

Relocation is left out, as its results depend on where the kernel loads the module. The function tracer's calls are
nops, as the loader leaves them.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.function_entry import NOPS5, TRACER_BYTES
from orchestrator.artifacts.kernel_code import CodePart, KernelCode, Symbol
from orchestrator.artifacts.module_files import loaded_files, module_content
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import LabError

_FUNCTIONS = ("STT_FUNC", "STT_NOTYPE")
"""Assemblers leave a function without a type if the source gives none; the kernel lists it all the same."""
_BASE, _DISTANCE = 0x10000000, 0x01000000
"""The address of the first section and the distance between sections; 32 bits have room for 200."""


def loaded_code(kernel: Kernel, modules: Sequence[str], symbol: str) -> Mapping[str, KernelCode]:
    """The code of those modules and dependencies that have the function. Raises LabError."""
    codes = {name: module_code(file) for name, file in loaded_files(kernel, modules).items()}
    return {name: code for name, code in codes.items() if code.has_function(symbol)}


def module_code(file: Path) -> KernelCode:
    """The functions of a module's file. Raises LabError if it is not a module."""
    try:
        return _code(file, file.stat().st_mtime_ns)
    except (OSError, *DAMAGED) as error:
        raise LabError(f"the functions of a module cannot be read ({error})", where=str(file)) from None


@lru_cache(maxsize=16)
def _code(file: Path, changed: int) -> KernelCode:
    del changed
    image = bytearray(module_content(file))
    elf = ELFFile(io.BytesIO(bytes(image)))
    sections = {
        index: section
        for index, section in enumerate(elf.iter_sections())
        if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR and section["sh_type"] == "SHT_PROGBITS" and section["sh_size"]
    }
    parts = {
        index: CodePart(_BASE + number * _DISTANCE, section["sh_size"], section["sh_offset"])
        for number, (index, section) in enumerate(sections.items())
    }
    for place in _tracer_calls(elf, parts):
        image[place : place + TRACER_BYTES] = NOPS5[0 if elf.elfclass == 64 else 1]
    return KernelCode(
        sorted(_functions(elf, parts), key=lambda function: function.address),
        bytes(image),
        elf.elfclass // 8,
        list(parts.values()),
        {section.name: parts[index] for index, section in sections.items()},
        is_module=True,
    )


def _functions(elf: ELFFile, parts: Mapping[int, CodePart]) -> Iterator[Symbol]:
    table = elf.get_section_by_name(".symtab")
    for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        part = parts.get(symbol["st_shndx"]) if symbol["st_info"]["type"] in _FUNCTIONS else None
        if part is not None and symbol.name:
            yield Symbol(part.address + symbol["st_value"], "t", symbol.name)
    # Ends the last function of a section.
    for part in parts.values():
        yield Symbol(part.address + part.size, "d", "")


def _tracer_calls(elf: ELFFile, parts: Mapping[int, CodePart]) -> Iterator[int]:
    """File offsets of the function tracer's calls, whose targets the loader fills in."""
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return
    for section in elf.iter_sections():
        part = parts.get(section["sh_info"])
        if part is None or not isinstance(section, RelocationSection):
            continue
        for relocation in section.iter_relocations():
            if table.get_symbol(relocation["r_info_sym"]).name == "__fentry__":
                yield part.place + relocation["r_offset"] - 1
