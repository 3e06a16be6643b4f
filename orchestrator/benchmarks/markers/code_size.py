# SPDX-License-Identifier: GPL-2.0-only
"""Bytes that a marker of each flavour adds to an object file, beside those of the document of 2006; its listing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

import capstone
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection
from rich.text import Text

from orchestrator.arch import OF_MACHINE, Arch
from orchestrator.benchmarks.markers.rows import Flavour, marker_benchmarks
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import ConfigError, EvidenceError
from orchestrator.report.columns import Column, Columns

_LARGEST = 16 << 20
_LARGEST_VARIABLE = 4096
"""Most bytes of a variable that are searched for pointers."""


@dataclass(frozen=True)
class SectionPlace:
    """A place in a section, by its offset in bytes."""

    section: str
    at: int


@dataclass(frozen=True)
class SectionSymbol:
    """A function or a variable, and its size in bytes."""

    name: str
    place: SectionPlace
    size: int


@dataclass(frozen=True)
class SymbolReference:
    """The name that a relocation refers to, and the target of the pointer that it makes."""

    name: str
    target: SectionPlace | None


@dataclass(frozen=True)
class ObjectFile:
    """A relocatable object file; ``references`` has what its relocations put into each place."""

    arch: Arch
    compiler: str
    functions: Mapping[str, SectionSymbol]
    variables: Sequence[SectionSymbol]
    sections: Mapping[str, bytes]
    references: Mapping[SectionPlace, SymbolReference]

    def text(self, place: SectionPlace) -> bytes:
        """The string at a place, without its terminator; empty where there is none."""
        content = self.sections.get(place.section, b"")
        return content[place.at :].split(b"\0")[0] if 0 <= place.at < len(content) else b""

    def pointed(self, variable: SectionSymbol) -> Sequence[SectionPlace]:
        start = variable.place.at
        places = (
            SectionPlace(variable.place.section, start + at) for at in range(min(variable.size, _LARGEST_VARIABLE))
        )
        section_places = (self.references[place].target for place in places if place in self.references)
        return [target for target in section_places if target is not None]


def read_object(file: Path) -> ObjectFile:
    """Read a .ko or .o. Raises ConfigError for any other file."""
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
    arch = OF_MACHINE.get(elf["e_machine"])
    table = elf.get_section_by_name(".symtab")
    if arch is None or elf["e_type"] != "ET_REL" or not isinstance(table, SymbolTableSection):
        raise ConfigError("is no relocatable object of x86", where=str(file))
    symbols: dict[str, list[SectionSymbol]] = {"STT_FUNC": [], "STT_OBJECT": []}
    for symbol in table.iter_symbols():
        index, kind = symbol["st_shndx"], symbol["st_info"]["type"]
        if kind in symbols and isinstance(index, int):
            place = SectionPlace(elf.get_section(index).name, symbol["st_value"])
            symbols[kind].append(SectionSymbol(symbol.name, place, symbol["st_size"]))
    comment = elf.get_section_by_name(".comment")
    compiler = comment.data().strip(b"\0").split(b"\0")[0] if comment else b""
    sections = {section.name: section.data() for section in elf.iter_sections() if section["sh_type"] == "SHT_PROGBITS"}
    functions = {section_symbol.name: section_symbol for section_symbol in symbols["STT_FUNC"]}
    name = compiler.decode("ascii", errors="replace")[:120]
    return ObjectFile(arch, name, functions, symbols["STT_OBJECT"], sections, dict(_references(elf, table)))


def _references(elf: Any, table: SymbolTableSection) -> Iterator[tuple[SectionPlace, SymbolReference]]:
    """The reference at each place. A target's offset is in the relocation (RELA), or at the place itself (REL)."""
    for section in elf.iter_sections():
        if not isinstance(section, RelocationSection):
            continue
        home = elf.get_section(section["sh_info"])
        content = home.data() if home["sh_type"] == "SHT_PROGBITS" else b""
        for relocation in section.iter_relocations():
            at, symbol = relocation["r_offset"], table.get_symbol(relocation["r_info_sym"])
            index = symbol["st_shndx"]
            of_section = elf.get_section(index).name if isinstance(index, int) else None
            stored = int.from_bytes(content[at : at + 4], "little", signed=True)
            beyond = relocation["r_addend"] if section.is_RELA() else stored
            target = None if of_section is None else SectionPlace(of_section, symbol["st_value"] + beyond)
            yield SectionPlace(home.name, at), SymbolReference(symbol.name or of_section or "", target)


# The marker's own instructions are those from the load of its immediate value or flag to the branch on it. The likely
# path is executed without a connected probe: from the function's entry to its return, no conditional branch taken.
# The unlikely path is all other reachable code, wherever the compiler put it.

MARKER_DATA = "__marker_data"
"""The section of the markers' names, formats, probes and flags."""
_IMMEDIATE = b"\xb0\x00"
"""mov $0, %al, which loads the immediate value."""
_LIKELY, _UNLIKELY = " ", "|"
"""Marks of the two paths in the listing."""


@dataclass(frozen=True)
class SectionInstruction:
    """An instruction as capstone decodes it, by its offset, and the name that it refers to.

    ``leads`` are the offsets of the instructions that may follow, the likely one first; empty at a function's end.
    """

    decoded: Any
    refers: str | None
    leads: Sequence[int]

    @property
    def is_conditional(self) -> bool:
        mnemonic: str = self.decoded.mnemonic
        return mnemonic.startswith("j") and mnemonic != "jmp"

    @property
    def reads(self) -> int:
        """Bytes of memory."""
        memory = [operand for operand in self.decoded.operands if operand.type == capstone.x86.X86_OP_MEM]
        return sum(operand.size for operand in memory if operand.access & capstone.CS_AC_READ)


@dataclass(frozen=True)
class Paths:
    """Bytes of a function's unlikely path, and its listing.

    ``marker`` is the size of the marker's own instructions in the likely path, ``flag`` the bytes of memory that they
    read; both are 0 without a marker.
    """

    unlikely: int
    marker: int
    flag: int
    listing: Sequence[str]


def paths(file: ObjectFile, name: str) -> Paths:
    """The paths of a function of the object. Raises EvidenceError where it is missing or cannot be followed."""
    function = file.functions.get(name)
    if function is None:
        raise EvidenceError(f"the object has no function {name}")
    code = {instruction.decoded.address: instruction for instruction in _instructions(file, function)}
    likely = _likely(code, name)
    # No path reaches the padding after a function's return.
    unlikely = _reachable(code, likely)
    cold = file.functions.get(f"{name}.cold")
    beyond = list(_instructions(file, cold)) if cold else []
    listing = [
        _line(instruction, _UNLIKELY if at in unlikely else _LIKELY)
        for at, instruction in code.items()
        if at in likely or at in unlikely
    ]
    way = [code[at] for at in likely]
    start = next(
        (
            n
            for n, instruction in enumerate(way)
            if instruction.decoded.bytes == _IMMEDIATE or instruction.refers == MARKER_DATA
        ),
        len(way),
    )
    end = next((n for n, instruction in enumerate(way) if n > start and instruction.is_conditional), start - 1)
    marker = way[start : end + 1]
    return Paths(
        unlikely=sum(instruction.decoded.size for instruction in [*(code[at] for at in unlikely), *beyond]),
        marker=sum(instruction.decoded.size for instruction in marker),
        flag=sum(instruction.reads for instruction in marker if instruction.refers == MARKER_DATA),
        listing=[*listing, *(_line(instruction, _UNLIKELY) for instruction in beyond)],
    )


def _instructions(file: ObjectFile, function: SectionSymbol) -> Iterator[SectionInstruction]:
    mode = capstone.CS_MODE_32 if file.arch == "i386" else capstone.CS_MODE_64
    machine = capstone.Cs(capstone.CS_ARCH_X86, mode)
    machine.syntax = capstone.CS_OPT_SYNTAX_ATT
    machine.detail = True
    section, start = function.place.section, function.place.at
    for decoded in machine.disasm(file.sections.get(section, b"")[start : start + function.size], 0):
        inside = (SectionPlace(section, start + decoded.address + byte) for byte in range(decoded.size))
        refers = next((file.references[place].name for place in inside if place in file.references), None)
        leads = (
            []
            if decoded.mnemonic in ("ret", "retq", "retl", "ud2", "int3", "jmp")
            else [decoded.address + decoded.size]
        )
        if decoded.mnemonic.startswith("j") and refers is None and re.fullmatch(r"(0x)?[0-9a-f]+", decoded.op_str):
            leads.append(int(decoded.op_str, 16))
        yield SectionInstruction(decoded, refers, leads)


def _likely(code: Mapping[int, SectionInstruction], name: str) -> list[int]:
    path: list[int] = []
    at = 0
    while at in code and at not in path:
        path.append(at)
        if not code[at].leads:
            return path
        at = code[at].leads[0]
    raise EvidenceError(f"the path through {name} reaches no return")


def _reachable(code: Mapping[int, SectionInstruction], likely: Sequence[int]) -> set[int]:
    reached: set[int] = set()
    waiting = [other_lead for at in likely for other_lead in code[at].leads[1:]]
    while waiting:
        at = waiting.pop()
        if at in code and at not in likely and at not in reached:
            reached.add(at)
            waiting += code[at].leads
    return reached


def _line(instruction: SectionInstruction, mark: str) -> str:
    notes, decoded = [f"<{instruction.refers}>"] if instruction.refers else [], instruction.decoded
    if decoded.bytes == _IMMEDIATE:
        notes.append("<-- immediate value")
    elif decoded.mnemonic.startswith(("movzbl", "movzb", "movb", "cmpb")) and instruction.refers == MARKER_DATA:
        notes.append("<-- load of the flag")
    elif decoded.mnemonic.startswith("call"):
        notes.append("<-- call" if instruction.refers is None or instruction.refers == MARKER_DATA else "")
    text = f"{decoded.mnemonic} {decoded.op_str}".strip()
    return f"{decoded.address:4x}: {decoded.bytes.hex(' '):<30} {mark} {text} {' '.join(notes)}".rstrip()


SITES = "__markers"
"""The section that lists where markers are."""
UNMARKED, PROBE = "my_open_unmarked", "do_mark1"
_MARKED: Mapping[Flavour, tuple[str, bytes]] = {
    "optimized": ("my_open_optimized", b"subsys_mark1"),
    "generic": ("my_open_generic", b"subsys_mark2"),
}
"""The marked functions, and their markers' names."""


@dataclass(frozen=True)
class MarkerSize:
    """Bytes that one marker adds, by kind and in ``sections`` of its own, and the listing of the marked function.

    ``likely`` are the marker's own instructions, ``unlikely`` everything else that it adds to the function. ``flag`` is
    the memory that the likely path reads, ``data`` the marker's part of .data; ``name`` and ``format`` are its texts.
    """

    likely: int
    unlikely: int
    flag: int
    data: int
    name: int
    format: int
    sections: Mapping[str, int]
    listing: Sequence[str]


def marker_sizes(file: ObjectFile) -> dict[Flavour, MarkerSize]:
    """Bytes that each flavour adds to an object of ``marker_sizes.c.j2``. Raises EvidenceError for others."""
    return {flavour: _size(file, *marked) for flavour, marked in _MARKED.items()}


def _size(file: ObjectFile, function: str, name: bytes) -> MarkerSize:
    marked, plain = paths(file, function), paths(file, UNMARKED)
    if not marked.marker:
        raise EvidenceError(f"the likely path of {function} has no marker")
    # A marker is a variable whose first two pointers are to its name and its format.
    markers = [
        variable
        for variable in file.variables
        if variable.place.section == MARKER_DATA and len(file.pointed(variable)) > 1
    ]
    marker = next((symbol for symbol in markers if file.text(file.pointed(symbol)[0]) == name), None)
    if marker is None:
        raise EvidenceError(f"the object has no marker {name.decode('ascii')}")
    name_text, format_text, *_ = (len(file.text(place)) + 1 for place in file.pointed(marker))
    symbols = [variable for variable in file.variables if variable.place in file.pointed(marker)]
    # Each entry in the list of sites begins with a pointer to its marker.
    heads = {
        place.at: reference.target
        for place, reference in file.references.items()
        if place.section == SITES and reference.target is not None and reference.target.section == MARKER_DATA
    }
    bounds = [*sorted(heads), len(file.sections.get(SITES, b""))]
    sites = sum(behind - at for at, behind in pairwise(bounds) if heads[at] == marker.place)
    if not sites:
        raise EvidenceError(f"the object does not list where the marker {marker.name} is")
    return MarkerSize(
        likely=marked.marker,
        unlikely=marked.unlikely - plain.unlikely,
        flag=marked.flag,
        data=sum(symbol.size for symbol in symbols if symbol.place.section == ".data"),
        name=name_text,
        format=format_text,
        sections={SITES: sites, MARKER_DATA: marker.size},
        listing=marked.listing,
    )


def size_lines(file: ObjectFile, kernel: str) -> Iterator[Text | str]:
    """The table's lines. Raises EvidenceError for an object without the document's functions and markers."""
    sizes = marker_sizes(file)
    yield "Bytes that each marker adds to the memory image"
    yield f"{file.arch}, kernel {kernel}, {file.compiler or 'unknown compiler'}"
    yield ""
    headings = [name for flavour in sizes for name in (flavour, "published")]
    table = Columns([Column[Sequence[str]](name, itemgetter(at)) for at, name in enumerate(headings)], together=4)
    yield from table.grid(table.row(*row) for row in _rows(list(sizes.values()))).lines(80, "-")
    yield ""
    yield "Published: Linux Kernel Markers 0.19, x86; its sections are .markers and .markers.c."
    yield "Likely path: the marker's own instructions. Unlikely path: what the marker adds there,"
    yield "including the function's frame if the compiler puts it there. Markers of one format"
    yield "share its text."


def listing_lines(file: ObjectFile) -> Iterator[str]:
    """The disassembly of the functions without and with a marker, and of the probe. Raises EvidenceError."""
    for title, lines in (
        ("Without marker", paths(file, UNMARKED).listing),
        *((flavour.capitalize(), size.listing) for flavour, size in marker_sizes(file).items()),
        ("The probe", paths(file, PROBE).listing),
    ):
        yield ""
        yield title
        yield from lines


def _rows(sizes: Sequence[MarkerSize]) -> list[tuple[str, Sequence[str]]]:
    """Each part's name, and its sizes: measured and published, by flavour."""
    published = list(marker_benchmarks().sizes.values())
    # In the document the flag is a marker's only part in .data; here it is in __marker_data.
    pairs: list[tuple[str, Sequence[object], Sequence[object]]] = [
        (".text, likely path", [size.likely for size in sizes], [size.likely for size in published]),
        (".text, unlikely path", [size.unlikely for size in sizes], [size.unlikely for size in published]),
        ("flag that is loaded", [size.flag for size in sizes], [size.flag for size in published]),
        (".data", [size.data for size in sizes], [size.flag for size in published]),
        (".rodata, name", [size.name for size in sizes], ["its length"] * 2),
        (".rodata, format", [size.format for size in sizes], ["-"] * 2),
    ]
    theirs = zip(*(size.sections.values() for size in published), strict=True)
    for section, documented in zip(sizes[0].sections, theirs, strict=True):
        pairs.append((section, [size.sections[section] for size in sizes], documented))
    return [
        (label, [str(size) for pair in zip(ours, documented, strict=True) for size in pair])
        for label, ours, documented in pairs
    ]
