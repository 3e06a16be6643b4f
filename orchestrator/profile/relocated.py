# SPDX-License-Identifier: GPL-2.0-only
"""What an instruction does, wherever its function is: addresses in it become the names of what they lead to.

Two instructions with one ``key`` are the same but for where their code and what they refer to was put. A profile has
the names of functions alone: an address of data is as good as another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.profile.operands import WORDS, Operand, operands
from orchestrator.results.clones import stem
from orchestrator.results.profile import CellProfile, SymbolProfile

_KERNEL_BYTES = {"i386": 128 << 20, "x86_64": 512 << 20}
"""Text and data of a kernel's image fit into this: all of KERNEL_IMAGE_SIZE on x86_64, Documentation/x86/x86_64/mm.rst
of Linux 6.1."""
_BEHIND_MODULES = {"i386": 0xFF000000, "x86_64": 0xFFFFFFFFFF000000}
"""Modules are below this; above are the fixed addresses, and small negative numbers."""
_PROGRAM_BYTES = 16 << 20

_HERE, _DATA = "here", "address"


class Relocated(NamedTuple):
    """An instruction: ``key`` for comparing, ``text`` for people, with a target inside the function as ``+0x45``."""

    key: str
    text: str


class CodeOfProfile:
    """The functions of a profile, and the names of what their instructions lead to."""

    def __init__(self, profile: CellProfile) -> None:
        self._names = profile.names
        self._arch = profile.arch
        self._word = WORDS[profile.arch]
        starts = [symbol.address for symbol in profile.symbols if symbol.place == "kernel"]
        self._kernel_start = min(starts, default=1 << 8 * self._word) & -(16 << 20)

    def relocated(self, symbol: SymbolProfile) -> Sequence[Relocated]:
        """The instructions of a symbol, in their order."""
        addresses = self._addresses(symbol)
        return [self._instruction(symbol, one.offset, one.code, addresses) for one in symbol.instructions]

    def _instruction(self, symbol: SymbolProfile, offset: int, code: str, addresses: range) -> Relocated:
        text, numbers = operands(code, self._word)
        key = shown = ""
        done = 0
        for number in numbers:
            between, own = text[done : number.start], text[number.start : number.end]
            found = self._operand(symbol, offset, number, addresses)
            key += between + (own if found is None else found.key)
            shown += between + (own if found is None else found.text or own)
            done = number.end
        return Relocated(key + text[done:], shown + text[done:])

    def _operand(self, symbol: SymbolProfile, offset: int, number: Operand, addresses: range) -> Relocated | None:
        """What stands for a number; None for one that is no address. Without a text the number itself is shown."""
        behind = 1 << 8 * self._word
        if number.kind != "relative":
            name = self._names.get("", {}).get(number.value % behind)
            is_address = number.kind == "per-cpu" or number.value % behind in addresses
            return _named(symbol, name) if name is not None else Relocated(_DATA, "") if is_address else None
        target = (symbol.address + offset + number.value) % behind
        name = self._names.get(symbol.module or "", {}).get(target)
        if name is not None:
            return _named(symbol, name)
        # Nobody knows where a module was: what is outside of it has no address.
        return Relocated(_DATA, _DATA if symbol.place == "module" else f"{target:#x}")

    def _addresses(self, symbol: SymbolProfile) -> range:
        """Numbers that are addresses in a symbol's code, not constants."""
        if symbol.place == "kernel":
            return range(self._kernel_start, self._kernel_start + _KERNEL_BYTES[self._arch])
        if symbol.place == "user":
            start = min((one.offset for one in symbol.instructions), default=0) & -(1 << 12)
            return range(start, start + _PROGRAM_BYTES)
        return range(self._kernel_start, _BEHIND_MODULES[self._arch])


def _named(symbol: SymbolProfile, name: str) -> Relocated:
    """A function, or a place in one: in another function any place, since code before it may have changed."""
    function, plus, behind = name.partition("+")
    if function == symbol.title:
        return Relocated(_HERE, f"+{behind or '0x0'}")
    return Relocated(stem(function) + plus, name)
