# SPDX-License-Identifier: GPL-2.0-only
"""Where are the functions of a loaded module? Its file has their places in sections, the guest the sections' addresses.

To read /proc/kallsyms again for one module takes a Debian guest 98 million instructions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.elf import DAMAGED
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value

_ADDRESS = re.compile(r"0x[0-9a-f]{8,16}")
_KINDS = ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE")


@dataclass(frozen=True)
class ModuleCode:
    """The addresses of a loaded module's functions by their names, and the first one behind their sections.

    Since Linux 6.4 (commit ac3b43283923) a module's data is elsewhere, and code of others may be right behind.
    """

    functions: Mapping[str, int]
    end: int


def module_code(guest: Guest, name: str, file: Path) -> ModuleCode:
    """Where a loaded module's functions are. Raises EvidenceError where its file has none."""

    def shown(section: str) -> str:
        return kernel_value(guest, f"/sys/module/{name}/sections/{section}")

    return code_at(name, file, shown)


def code_at(name: str, file: Path, shown: Callable[[str], str]) -> ModuleCode:
    """The same of a module whose sections are where ``shown`` says: addresses as the guest writes them."""
    try:
        with file.open("rb") as opened:
            elf = ELFFile(opened)
            found = list(_functions(elf))
            sizes = {section.name: section["sh_size"] for section in elf.iter_sections()}
    except (OSError, *DAMAGED):
        raise EvidenceError(f"the symbols of module {name} cannot be read", where=str(file)) from None
    starts = {section: _address(shown(section), name, section) for section in {section for _, section, _ in found}}
    return ModuleCode(
        {function: starts[section] + offset for function, section, offset in found},
        max((start + sizes[section] for section, start in starts.items()), default=0),
    )


def _address(shown: str, module: str, section: str) -> int:
    if not _ADDRESS.fullmatch(shown):
        raise EvidenceError(f"section {section} of module {module} is at {shown[:40]!r}")
    return int(shown, 16)


def _functions(elf: ELFFile) -> Iterator[tuple[str, str, int]]:
    """Name, section and offset of what can be executed: functions, labels of assembly, room for code."""
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return
    sections = list(elf.iter_sections())
    for symbol in table.iter_symbols():
        index = symbol["st_shndx"]
        if symbol["st_info"]["type"] not in _KINDS or not symbol.name or not isinstance(index, int):
            continue
        # The kernel frees the sections of a module's beginning, and lists no empty ones.
        is_kept = not sections[index].name.startswith(".init") and sections[index]["sh_size"]
        if sections[index]["sh_flags"] & SH_FLAGS.SHF_EXECINSTR and is_kept:
            yield symbol.name, sections[index].name, symbol["st_value"]
