# SPDX-License-Identifier: GPL-2.0-only
"""The functions of a loaded module: its file has their places in sections, the guest the sections' addresses.

Reading /proc/kallsyms again for one module takes a Debian guest 98 million instructions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.artifacts.kernel_code import CodePart, Symbol
from orchestrator.artifacts.module_code import module_code
from orchestrator.errors import EvidenceError, LabError

_ADDRESS = re.compile(r"0x[0-9a-f]{8,16}")


class ModuleCode(NamedTuple):
    """The addresses of a loaded module's functions by name, and the end of their sections.

    Since Linux 6.4 (commit ac3b43283923) a module's data is elsewhere, and another module's code may directly follow.
    """

    functions: Mapping[str, int]
    end: int


def code_at(name: str, file: Path, shown: Callable[[str], str]) -> ModuleCode:
    """Find a module's functions; ``shown`` returns a section's address as the guest writes it.

    Raises EvidenceError if the file's symbols cannot be read.
    """
    functions, end = dict[str, int](), 0
    for section, part, symbols in _kept_sections(name, file):
        address = shown(section)
        if not _ADDRESS.fullmatch(address):
            raise EvidenceError(f"section {section} of module {name} is at {address[:40]!r}")
        start = int(address, 16)
        functions |= {symbol.name: start + symbol.address - part.address for symbol in symbols}
        end = max(end, start + part.size)
    return ModuleCode(functions, end)


def module_functions(name: str, file: Path) -> Sequence[str]:
    """The functions of a module, by name, that it keeps after its init function. Raises EvidenceError."""
    names = (function.name for _, _, functions in _kept_sections(name, file) for function in functions)
    return sorted({function for function in names if not function.startswith("__pfx_")})


def _kept_sections(name: str, file: Path) -> Iterator[tuple[str, CodePart, Sequence[Symbol]]]:
    """The sections with functions that the kernel keeps after the init function, and these functions."""
    try:
        code = module_code(file)
    except LabError:
        raise EvidenceError(f"the symbols of module {name} cannot be read", where=str(file)) from None
    for section, part in code.sections.items():
        inside = range(part.address, part.address + part.size + 1)
        symbols = [symbol for symbol in code.symbols if symbol.name and symbol.address in inside]
        if symbols and not section.startswith(".init"):  # the kernel frees a module's init sections
            yield section, part, symbols
