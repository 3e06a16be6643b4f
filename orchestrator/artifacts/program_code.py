# SPDX-License-Identifier: GPL-2.0-only
"""A place in a program or a shared library, a function's or a static probe point: in memory, in the file, the bytes."""

from __future__ import annotations

import contextlib
import difflib
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Symbol, SymbolTableSection

from orchestrator.artifacts.instructions import decoded
from orchestrator.artifacts.static_points import static_points
from orchestrator.elf import DAMAGED
from orchestrator.errors import BuildError

_SHOWN_BYTES = 16
_SHOWN_POINTS = 8
_EXECUTABLE = 1
"""PF_X of a segment's flags."""
_IFUNC = "STT_LOOS"
"""STT_GNU_IFUNC by the name of its number."""
_FUNCTIONS = ("STT_FUNC", _IFUNC)
_LABELS = ("STT_NOTYPE",)
_VERSIONS = ".gnu.version"
_HIDDEN = 1 << 15
"""VERSYM_HIDDEN: no program is linked with this version of the symbol any more."""


@dataclass(frozen=True)
class ProgramPlace:
    """An instruction of a program or a library: its address, its place in the file, and up to 16 bytes from there on.

    ``semaphore`` is the place in the file of the counter that a static probe point has for its probes, or 0.
    """

    address: int
    file_offset: int
    code: bytes
    semaphore: int = 0


def find_in_program(program: Path, symbol: str, offset: int) -> ProgramPlace:
    """The place ``offset`` bytes behind the beginning of a program's function, or its static point PROVIDER:NAME.

    Raises BuildError where the program has no such function or point, or has no fixed addresses.
    """
    with _read(program, program.name) as elf:
        if elf["e_type"] != "ET_EXEC":
            raise BuildError(
                f"{program.name} is position-independent, and has no fixed address", hint="link it with -no-pie"
            )
        return _find(elf, "the program", symbol, offset)


def find_in_library(library: Path, name: str, symbol: str, offset: int) -> ProgramPlace:
    """The same in a shared library, whose ``name`` errors have; the address is that behind where it is loaded.

    Raises BuildError as well for a function that is chosen as the library is loaded.
    """
    with _read(library, name) as elf:
        return _find(elf, name, symbol, offset)


@contextlib.contextmanager
def _read(file: Path, name: str) -> Iterator[ELFFile]:
    try:
        with file.open("rb") as content:
            yield ELFFile(content)
    except OSError as error:
        raise BuildError(f"{name} cannot be read: {error.strerror}") from None
    except DAMAGED:
        raise BuildError(f"{name} is damaged: its headers and its contents disagree") from None


def _find(elf: ELFFile, name: str, symbol: str, offset: int) -> ProgramPlace:
    if ":" in symbol:
        return _static_place(elf, name, symbol)
    functions = _functions(elf)
    if not functions:
        raise BuildError(f"{name} has no symbols: nothing in it can be found by its name", hint="do not strip it")
    if symbol not in functions:
        raise _not_found(elf, name, symbol, functions)
    found = functions[symbol]
    if found.is_one_of_several:
        raise BuildError(
            f"{name} has several functions {symbol}: which one is meant is not known", hint="rename one of them"
        )
    if found.is_chooser:
        raise BuildError(
            f"{symbol} of {name} is chosen for the CPU as the library is loaded (IFUNC): calls do not enter its symbol",
            hint="probe another function",
        )
    if offset >= found.size:
        raise BuildError(f"{symbol}+{offset:#x} is behind the end of {symbol}, which has {found.size:#x} bytes")
    _check_boundary(elf, symbol, found, offset)
    return _place_at(elf, found.start + offset, symbol)


def _check_boundary(elf: ELFFile, symbol: str, function: _Function, offset: int) -> None:
    """Raise BuildError for a place inside an instruction: a breakpoint there makes another one of it.

    The kernel takes it, and of a library all processes of the guest would execute that.
    """
    code = _place_at(elf, function.start, symbol, function.size).code
    for one in decoded(code, function.start, elf.elfclass // 8):
        if one.address < function.start + offset < one.end:
            raise BuildError(
                f"{symbol}+{offset:#x} is inside the instruction at +{one.address - function.start:#x} "
                f"({one.size} bytes): the next one begins at +{one.end - function.start:#x}"
            )


def _not_found(elf: ELFFile, name: str, symbol: str, functions: Mapping[str, _Function]) -> BuildError:
    """Why a file has no function of a name."""
    others = [entry for table in _tables(elf) for entry in table.iter_symbols() if entry.name.split("@")[0] == symbol]
    if any(entry["st_shndx"] != "SHN_UNDEF" for entry in others):
        return BuildError(f"{symbol} of {name} is no function: it is not in code that is executed")
    if others:
        return BuildError(
            f"{name} has no function {symbol} of its own: it calls that of a library",
            hint=f"name the library: LIBRARY:{symbol}",
        )
    alike = difflib.get_close_matches(symbol, functions, n=3, cutoff=0.5)
    return BuildError(
        f"{name} has no function {symbol}; the compiler may have inlined it",
        hint=f"did you mean {', '.join(alike)}" if alike else "__attribute__((noinline)) keeps a function",
    )


@dataclass(frozen=True)
class _Function:
    """A function's address and bytes. One that ``is_chooser`` returns the address of what is called instead of it.

    One that ``is_one_of_several`` shares its name with another, and neither is exported.
    """

    start: int
    size: int
    is_chooser: bool
    is_one_of_several: bool = False


def _tables(elf: ELFFile) -> Sequence[SymbolTableSection]:
    """The dynamic table comes last: a name that is exported is the library's, whatever static functions share it."""
    tables = [table for table in elf.iter_sections() if isinstance(table, SymbolTableSection)]
    return sorted(tables, key=_is_dynamic)


def _is_dynamic(table: SymbolTableSection) -> bool:
    return bool(table["sh_type"] == "SHT_DYNSYM")


def _functions(elf: ELFFile) -> dict[str, _Function]:
    """By name; of a name with several versions the one that a program is linked with today.

    Assemblers leave a function without a size or a type where the source does not give them. A label in the code counts
    as a function where none has its name; what has no size ends where the next function or exported label begins.
    """
    code = [
        range(section["sh_addr"], section["sh_addr"] + section["sh_size"])
        for section in elf.iter_sections()
        if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR
    ]
    found: dict[str, _Function] = {}
    beginnings: set[int] = set()
    for table in _tables(elf):
        for kinds in (_LABELS, _FUNCTIONS):
            named: dict[str, _Function] = {}
            for name, entry in _current(elf, table):
                start, kind = int(entry["st_value"]), entry["st_info"]["type"]
                if kind not in kinds or not any(start in part for part in code):
                    continue
                if kind in _FUNCTIONS or entry["st_info"]["bind"] != "STB_LOCAL":
                    beginnings.add(start)
                one = _Function(start, int(entry["st_size"]), kind == _IFUNC)
                is_second = name in named and (named[name].is_one_of_several or named[name].start != start)
                named[name] = replace(one, is_one_of_several=is_second and not _is_dynamic(table))
            found |= named
    sizes: dict[int, int] = {}
    for one in found.values():
        sizes[one.start] = max(one.size, sizes.get(one.start, 0))
    ends = sorted(beginnings | {part.stop for part in code})
    return {
        name: replace(one, size=sizes[one.start] or ends[bisect_right(ends, one.start)] - one.start)
        for name, one in found.items()
    }


def _current(elf: ELFFile, table: SymbolTableSection) -> Iterator[tuple[str, Symbol]]:
    """The symbols of a table that have a place, but for those of superseded versions; names without a version."""
    versions = elf.get_section_by_name(_VERSIONS) if _is_dynamic(table) else None
    of_each = b"" if versions is None else versions.data()
    for index, entry in enumerate(table.iter_symbols()):
        if entry["st_shndx"] == "SHN_UNDEF":
            continue
        if of_each and struct.unpack_from("<H", of_each, 2 * index)[0] & _HIDDEN:
            continue
        # In the full table a name has its version: pause@@GLIBC_2.2.5, or with one @ a superseded one.
        name, at, version = entry.name.partition("@")
        if name and (not at or version.startswith("@")):
            yield name, entry


def _static_place(elf: ELFFile, file: str, name: str) -> ProgramPlace:
    points = list(static_points(elf))
    found = list({point.address: point for point in points if point.name == name}.values())
    if not found:
        names = sorted({point.name for point in points})
        known = f"it has {', '.join(names[:_SHOWN_POINTS])}" if names else "USDT() of usdt.h makes one"
        raise BuildError(f"{file} has no static probe point {name}", hint=known)
    if len(found) > 1:
        raise BuildError(
            f"{file} has the static probe point {name} at {len(found)} places, and only one can be probed",
            hint="the function that it is in was inlined, or the name is used twice",
        )
    place, semaphore = _place_at(elf, found[0].address, name), found[0].semaphore
    if not semaphore:
        return place
    for segment in elf.iter_segments("PT_LOAD"):
        into = semaphore - segment["p_vaddr"]
        if 0 <= into < segment["p_filesz"]:
            return replace(place, semaphore=segment["p_offset"] + into)
    raise BuildError(f"the semaphore of {name} is nowhere in the file of {file}")


def _place_at(elf: ELFFile, address: int, name: str, size: int = _SHOWN_BYTES) -> ProgramPlace:
    for segment in elf.iter_segments("PT_LOAD"):
        into = address - segment["p_vaddr"]
        if segment["p_flags"] & _EXECUTABLE and 0 <= into < segment["p_filesz"]:
            return ProgramPlace(address, segment["p_offset"] + into, segment.data()[into : into + size])
    raise BuildError(f"{name} is in no segment that is executed")
