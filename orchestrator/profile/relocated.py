# SPDX-License-Identifier: GPL-2.0-only
"""What an instruction does, wherever its function is: addresses in it become the names of what they lead to.

Two instructions with one ``key`` are the same but for where their code and what they refer to was put.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from orchestrator.artifacts.instructions import disassembled
from orchestrator.results.clones import stem
from orchestrator.results.profile import CellProfile, SymbolProfile

WORDS = {"i386": 4, "x86_64": 8}

_KERNEL_BYTES = {"i386": 128 << 20, "x86_64": 512 << 20}
"""Text and data of a kernel's image fit into this: all of KERNEL_IMAGE_SIZE on x86_64, Documentation/x86/x86_64/mm.rst
of Linux 6.1."""
_BEHIND_MODULES = {"i386": 0xFF000000, "x86_64": 0xFFFFFFFFFF000000}
"""Modules are below this; above are the fixed addresses, and small negative numbers."""
_PROGRAM_BYTES = 16 << 20
_ELSEWHERE = "elsewhere"
"""What the calls did not execute, and from a module all that is outside: a profile does not say where modules were."""

_NUMBER = re.compile(r"(?P<rip>rip )?(?P<sign>[+-] )?(?<![\w.])0x(?P<digits>[0-9a-f]+)\b")
_BRANCH = re.compile(r"(?:.* )?(?:call|j[a-z]+|loop[a-z]*|xbegin) 0x[0-9a-f]+")
_PER_CPU = re.compile(r"[fg]s:\[0x[0-9a-f]+\]")
"""Without a register the number is a variable's place among those of a CPU; beside one it may be a field's in it."""


class Relocated(NamedTuple):
    """An instruction: ``key`` for comparing, ``text`` for people, with a target inside the function as ``+0x45``."""

    key: str
    text: str


class _Number(NamedTuple):
    """A number in an instruction at address 0: from ``start`` to ``end`` of its text.

    ``kind``: ``target`` of a branch or relative to the instruction, both less its address; ``per-cpu``; ``plain``.
    """

    start: int
    end: int
    value: int
    kind: str


@dataclass(frozen=True)
class _Extent:
    """A function that was executed, up to the end of its last executed instruction."""

    start: int
    end: int
    name: str


class CodeOfProfile:
    """The functions of a profile, as what the operands of its instructions may lead to."""

    def __init__(self, profile: CellProfile) -> None:
        self._arch = profile.arch
        self._word = WORDS[profile.arch]
        extents: dict[str | None, list[_Extent]] = defaultdict(list)
        for symbol in profile.symbols:
            if symbol.place in ("kernel", "module") and symbol.instructions:
                extents[symbol.module].append(_Extent(symbol.address, _end(symbol), symbol.name))
        self._extents: Mapping[str | None, Sequence[_Extent]] = {
            module: sorted(found, key=lambda one: one.start) for module, found in extents.items()
        }
        kernel = self._extents.get(None, ())
        self._kernel_start = kernel[0].start & -(16 << 20) if kernel else 1 << 8 * self._word

    def relocated(self, symbol: SymbolProfile) -> Sequence[Relocated]:
        """The instructions of a symbol, in their order."""
        ranges = self._ranges(symbol)
        inside = _Extent(_start(symbol), _end(symbol), symbol.name)
        return [self._relocated(symbol, one.offset, one.code, inside, ranges) for one in symbol.instructions]

    def _relocated(
        self, symbol: SymbolProfile, offset: int, code: str, inside: _Extent, ranges: Sequence[range]
    ) -> Relocated:
        text, numbers = _template(code, self._word)
        key, shown, done = "", "", 0
        for number in numbers:
            before = text[done : number.start]
            own = text[number.start : number.end]
            done = number.end
            key, shown = key + before, shown + before
            value = number.value % (1 << 8 * self._word)
            if number.kind == "target":
                value = (symbol.address + offset + value) % (1 << 8 * self._word)
            found = self._place(value, symbol, inside)
            if found is not None and number.kind == "target":
                key, shown = key + found.key, shown + found.text
            elif number.kind == "target":
                key, shown = key + _ELSEWHERE, shown + (_ELSEWHERE if symbol.place == "module" else f"{value:#x}")
            elif number.kind == "per-cpu" or any(value in one for one in ranges):
                name = "address" if found is None else found.key
                key, shown = key + name, shown + own
            else:
                key, shown = key + own, shown + own
        return Relocated(key + text[done:], shown + text[done:])

    def _place(self, address: int, symbol: SymbolProfile, inside: _Extent) -> Relocated | None:
        """What is at an address, as an instruction of a symbol sees it."""
        if inside.start <= address < inside.end and symbol.place != "generated":
            return Relocated("here", f"{address - symbol.address:+#x}")
        extents = self._extents.get(symbol.module, ())
        at = bisect_right(extents, address, key=lambda one: one.start) - 1
        if at < 0 or address >= extents[at].end:
            return None
        name, behind = stem(extents[at].name), address - extents[at].start
        return Relocated(f"{name}+" if behind else name, f"{extents[at].name}{f'+{behind:#x}' if behind else ''}")

    def _ranges(self, symbol: SymbolProfile) -> Sequence[range]:
        """Numbers that are addresses in a symbol's code, not constants."""
        behind = self._kernel_start + _KERNEL_BYTES[self._arch]
        match symbol.place:
            case "kernel":
                return [range(self._kernel_start, behind)]
            case "user":
                first = _start(symbol) & -(1 << 12)
                return [range(first, first + _PROGRAM_BYTES)]
            case _:
                return [range(self._kernel_start, _BEHIND_MODULES[self._arch])]


def _start(symbol: SymbolProfile) -> int:
    """Where its code begins: a program and generated code have no address of their own."""
    if symbol.place in ("kernel", "module"):
        return symbol.address
    return min((one.offset for one in symbol.instructions), default=0)


def _end(symbol: SymbolProfile) -> int:
    ends = (one.offset + len(one.code) // 2 for one in symbol.instructions)
    return symbol.address + max(ends, default=0)


@lru_cache(maxsize=65536)
def _template(code: str, word: int) -> tuple[str, tuple[_Number, ...]]:
    """An instruction's text at address 0, and the numbers in it; a profile has most codes many times."""
    text = disassembled(bytes.fromhex(code), 0, word)
    if text.startswith(".byte"):
        return text, ()
    if _BRANCH.fullmatch(text):
        at = text.rindex("0x")
        return text, (_Number(at, len(text), int(text[at:], 16), "target"),)
    per_cpu = _PER_CPU.search(text)
    numbers = []
    for found in _NUMBER.finditer(text):
        value = int(found["digits"], 16) * (-1 if found["sign"] == "- " else 1)
        if found["rip"]:
            # Its sign goes, too: what is behind the code of one kernel may be before that of another.
            numbers.append(_Number(found.start(), found.end(), value + len(code) // 2, "target"))
        elif per_cpu is not None and per_cpu.start() < found.start() < per_cpu.end():
            numbers.append(_Number(found.start(), found.end(), value, "per-cpu"))
        else:
            numbers.append(_Number(found.start(), found.end(), value, "plain"))
    return text, tuple(numbers)
