# SPDX-License-Identifier: GPL-2.0-only
"""Where are the functions of a loaded module? Its file has their places in sections, the guest the sections' addresses.

To read /proc/kallsyms again for one module takes a Debian guest 98 million instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.elf import DAMAGED
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.text_layout import module_sections


def module_functions(guest: Guest, name: str, file: Path) -> dict[str, int]:
    """The addresses of a loaded module's functions by their names. Raises EvidenceError where its file has none."""
    sections = module_sections(guest, [name])[name]
    try:
        with file.open("rb") as opened:
            return {
                function: sections[section] + offset
                for function, section, offset in _functions(ELFFile(opened))
                if section in sections
            }
    except (OSError, *DAMAGED):
        raise EvidenceError(f"the symbols of module {name} cannot be read", where=str(file)) from None


def _functions(elf: ELFFile) -> Iterator[tuple[str, str, int]]:
    """Name, section and offset of each function."""
    table = elf.get_section_by_name(".symtab")
    if isinstance(table, SymbolTableSection):
        for symbol in table.iter_symbols():
            index = symbol["st_shndx"]
            if symbol["st_info"]["type"] == "STT_FUNC" and isinstance(index, int):
                yield symbol.name, elf.get_section(index).name, symbol["st_value"]
