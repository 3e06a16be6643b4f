# SPDX-License-Identifier: GPL-2.0-only
"""A place in a static program, a function's or a static probe point: in its memory and in its file, and the bytes."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.static_points import static_points
from orchestrator.elf import DAMAGED
from orchestrator.errors import BuildError

_SHOWN_BYTES = 16
_SHOWN_POINTS = 8
_EXECUTABLE = 1
"""PF_X of a segment's flags."""


@dataclass(frozen=True)
class ProgramPlace:
    """An instruction of a program: its address, its place in the file, and up to 16 bytes from there on.

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
    try:
        with program.open("rb") as file:
            return _find(ELFFile(file), program.name, symbol, offset)
    except OSError as error:
        raise BuildError(f"{program.name} cannot be read: {error.strerror}") from None
    except DAMAGED:
        raise BuildError(f"{program.name} is damaged: its headers and its contents disagree") from None


def _find(elf: ELFFile, name: str, symbol: str, offset: int) -> ProgramPlace:
    if elf["e_type"] != "ET_EXEC":
        raise BuildError(f"{name} is position-independent, and has no fixed address", hint="link it with -no-pie")
    if ":" in symbol:
        return _static_place(elf, symbol)
    functions: dict[str, dict[int, int]] = {}
    for table in elf.iter_sections():
        for entry in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
            if entry["st_info"]["type"] == "STT_FUNC" and entry["st_shndx"] != "SHN_UNDEF":
                functions.setdefault(entry.name, {})[int(entry["st_value"])] = int(entry["st_size"])
    if not functions:
        raise BuildError(f"{name} has no symbols: nothing in it can be found by its name", hint="do not strip it")
    if symbol not in functions:
        alike = difflib.get_close_matches(symbol, functions, n=3, cutoff=0.5)
        raise BuildError(
            f"the program has no function {symbol}; the compiler may have inlined it",
            hint=f"did you mean {', '.join(alike)}" if alike else "__attribute__((noinline)) keeps a function",
        )
    if len(functions[symbol]) > 1:
        raise BuildError(
            f"the program has {len(functions[symbol])} functions {symbol}: which one is meant is not known",
            hint="rename one of them",
        )
    ((start, size),) = functions[symbol].items()
    if offset >= max(size, 1):
        raise BuildError(f"{symbol}+{offset:#x} is behind the end of {symbol}, which has {size:#x} bytes")
    return _place_at(elf, start + offset, symbol)


def _static_place(elf: ELFFile, name: str) -> ProgramPlace:
    points = list(static_points(elf))
    found = [point for point in points if point.name == name]
    if not found:
        names = sorted({point.name for point in points})
        known = f"it has {', '.join(names[:_SHOWN_POINTS])}" if names else "USDT() of usdt.h makes one"
        raise BuildError(f"the program has no static probe point {name}", hint=known)
    if len(found) > 1:
        raise BuildError(
            f"the program has the static probe point {name} at {len(found)} places, and only one can be probed",
            hint="the function that it is in was inlined, or the name is used twice",
        )
    place, semaphore = _place_at(elf, found[0].address, name), found[0].semaphore
    if not semaphore:
        return place
    for segment in elf.iter_segments("PT_LOAD"):
        into = semaphore - segment["p_vaddr"]
        if 0 <= into < segment["p_filesz"]:
            return replace(place, semaphore=segment["p_offset"] + into)
    raise BuildError(f"the semaphore of {name} is nowhere in the program's file")


def _place_at(elf: ELFFile, address: int, name: str) -> ProgramPlace:
    for segment in elf.iter_segments("PT_LOAD"):
        into = address - segment["p_vaddr"]
        if segment["p_flags"] & _EXECUTABLE and 0 <= into < segment["p_filesz"]:
            return ProgramPlace(address, segment["p_offset"] + into, segment.data()[into : into + _SHOWN_BYTES])
    raise BuildError(f"{name} is in no segment of the program that is executed")
