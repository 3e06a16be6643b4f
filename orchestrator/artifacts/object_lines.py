# SPDX-License-Identifier: GPL-2.0-only
"""The source lines of a program in a BPF object, as the compiler wrote them: before the verifier removes any code.

The format is that of .BTF.ext in Documentation/bpf/btf.rst of Linux.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.object_types import ObjectTypes
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import BuildError

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
"""Up to the lines: magic, version, flags, its length; functions and lines, each with offset and length."""
_SECTION, _LINE = struct.Struct("<II"), struct.Struct("<IIII")
_LINE_SHIFT = 10
"""BPF_LINE_INFO_LINE_NUM() of include/uapi/linux/bpf.h."""
_MOST = 1 << 17


class ObjectLine(NamedTuple):
    """The line of the instructions from ``offset`` bytes behind the program's first one on, up to the next one's."""

    offset: int
    file: str
    line: int


def object_lines(content: bytes, program: str) -> Sequence[ObjectLine]:
    """The lines of a program in the order of its code; none of an object without type information, or a damaged one."""
    try:
        elf = ELFFile(io.BytesIO(content))
        types, lines = elf.get_section_by_name(".BTF"), elf.get_section_by_name(".BTF.ext")
        table = elf.get_section_by_name(".symtab")
        symbols = table.get_symbol_by_name(program) if isinstance(table, SymbolTableSection) else None
        if types is None or lines is None or not symbols:
            return []
        start, size = symbols[0]["st_value"], symbols[0]["st_size"]
        section = elf.get_section(symbols[0]["st_shndx"]).name
        listed = _lines_of(lines.data(), ObjectTypes(types.data()), section)
        in_section = (ObjectLine(line.offset - start, line.file, line.line) for line in listed)
        return sorted(line for line in in_section if 0 <= line.offset < size)
    except (*DAMAGED, BuildError, struct.error):
        return []


def _lines_of(content: bytes, types: ObjectTypes, section: str) -> Iterator[ObjectLine]:
    magic, _, _, length, _, _, lines, lines_length = _HEADER.unpack_from(content)
    if magic != _MAGIC:
        return
    at, end = length + lines, min(length + lines + lines_length, len(content))
    (record,) = struct.unpack_from("<I", content, at)
    at += 4
    while at < end and record >= _LINE.size:
        name, number = _SECTION.unpack_from(content, at)
        at += _SECTION.size
        for _ in range(min(number, _MOST)):
            offset, file, _, line = _LINE.unpack_from(content, at)
            at += record
            if types.text_at(name) == section:
                yield ObjectLine(offset, types.text_at(file), line >> _LINE_SHIFT)
