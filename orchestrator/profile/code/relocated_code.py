# SPDX-License-Identifier: GPL-2.0-only
"""Instructions independent of addresses: addresses in them become the names of their targets.

Two instructions with one ``key`` differ only in where their code and its targets are. A profile names functions only:
all addresses of data are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.operands import Operand, operands
from orchestrator.profile.stored.cell_profile import CellProfile, SymbolProfile, stem

_KERNEL_BYTES = {"i386": 128 << 20, "x86_64": 512 << 20}
"""The maximum of text and data of a kernel's image: KERNEL_IMAGE_SIZE on x86_64, Documentation/x86/x86_64/mm.rst of
Linux 6.1."""


_BEHIND_MODULES = {"i386": 0xFF000000, "x86_64": 0xFFFFFFFFFF000000}
"""Modules are below; above are the fixed addresses, and small negative numbers."""


_PROGRAM_BYTES = 16 << 20


_HERE, _DATA = "here", "address"


class Relocated(NamedTuple):
    """An instruction: ``key`` for comparing, ``text`` for display, with targets inside the function as ``+0x45``."""

    key: str
    text: str


class CodeOfProfile:
    """The functions of a profile, and the names of their instructions' targets."""

    def __init__(self, profile: CellProfile) -> None:
        self._names = profile.names
        self._arch = profile.arch
        self._word = ARCHITECTURES[profile.arch].word
        starts = [symbol.address for symbol in profile.symbols if symbol.place == "kernel"]
        self._kernel_start = min(starts, default=1 << 8 * self._word) & -(16 << 20)

    def relocated(self, symbol: SymbolProfile) -> Sequence[Relocated]:
        addresses = self._addresses(symbol)
        return [
            self._instruction(symbol, instruction.offset, instruction.code, addresses)
            for instruction in symbol.instructions
        ]

    def _instruction(self, symbol: SymbolProfile, offset: int, code: str, addresses: range) -> Relocated:
        text, numbers = operands(code, self._word)
        key = shown = ""
        done = 0
        for number in numbers:
            between, written = text[done : number.start], text[number.start : number.end]
            relocated = self._operand(symbol, offset, number, addresses)
            key += between + (written if relocated is None else relocated.key)
            shown += between + (written if relocated is None else relocated.text or written)
            done = number.end
        return Relocated(key + text[done:], shown + text[done:])

    def _operand(self, symbol: SymbolProfile, offset: int, number: Operand, addresses: range) -> Relocated | None:
        """The replacement of a number; None if it is not an address. Without a text the number itself is shown."""
        behind = 1 << 8 * self._word
        if number.kind != "relative":
            name = self._names.get("", {}).get(number.value % behind)
            is_address = number.kind == "per-cpu" or number.value % behind in addresses
            return _named(symbol, name) if name is not None else Relocated(_DATA, "") if is_address else None
        target = (symbol.address + offset + number.value) % behind
        name = self._names.get(symbol.module or "", {}).get(target)
        if name is not None:
            return _named(symbol, name)
        if symbol.place == "generated" and target in _executed(symbol):
            return Relocated(_HERE, f"+{target - symbol.address:#x}")
        # A module's address is unknown: so are addresses outside of it.
        return Relocated(_DATA, _DATA if symbol.place == "module" else f"{target:#x}")

    def _addresses(self, symbol: SymbolProfile) -> range:
        if symbol.place == "kernel":
            return range(self._kernel_start, self._kernel_start + _KERNEL_BYTES[self._arch])
        if symbol.place == "user":
            start = min((instruction.offset for instruction in symbol.instructions), default=0) & -(1 << 12)
            return range(start, start + _PROGRAM_BYTES)
        return range(self._kernel_start, _BEHIND_MODULES[self._arch])


def _executed(symbol: SymbolProfile) -> range:
    """The addresses from a symbol's beginning up to its last executed instruction; none if its beginning is unknown."""
    last = max((instruction.offset for instruction in symbol.instructions), default=-1)
    return range(symbol.address, symbol.address + last + 1) if symbol.address else range(0)


def _named(symbol: SymbolProfile, name: str) -> Relocated:
    """A function or a place in one; places in other functions are alike, as code before them may have changed."""
    function, plus, behind = name.partition("+")
    if function == symbol.title:
        return Relocated(_HERE, f"+{behind or '0x0'}")
    return Relocated(stem(function) + plus, name)
