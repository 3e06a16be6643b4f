# SPDX-License-Identifier: GPL-2.0-only
"""Was a changed place of the kernel's text a static branch, and whose? The kernel switches these itself.

Its table has an entry for each: two words that lead to the place and to the branch's target. An entry is found by its
content, since kernels without CONFIG_KALLSYMS_ALL (Debian's for i386) do not list where the table is.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols

LONGEST = 5

_NOPS = {2: (b"\x66\x90", b"\x89\xf6"), LONGEST: (b"\x0f\x1f\x44\x00\x00", b"\x3e\x8d\x74\x26\x00")}
"""By their bytes, on 64 and on 32 bits (BYTES_NOP2, BYTES_NOP5 of arch/x86/include/asm/nops.h)."""
_JUMPS = {2: struct.Struct("<Bb"), LONGEST: struct.Struct("<Bi")}
_JUMP_OPCODES = {2: 0xEB, LONGEST: 0xE9}

_FLAGS = 3
"""Low bits of a key's address in the table, which are no part of it."""
_TRACEPOINT_WORDS = 8
"""Words from a tracepoint's key on, among them its functions (struct tracepoint of include/linux/tracepoint-defs.h)."""
_TRACEPOINT_FUNCTIONS = ("__SCT__tp_func_", "__traceiter_")


@dataclass(frozen=True)
class Span:
    """Kernel memory from one address to behind another; ``name`` is a module's, or ``kernel``."""

    name: str
    start: int
    end: int

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start


@dataclass(frozen=True)
class Switched:
    """What looks like a static branch that was switched: a nop became a jump to ``target``, or the reverse."""

    address: int
    target: int
    size: int


def switched_at(address: int, before: bytes, after: bytes) -> Switched | None:
    """Whether a nop and a jump have taken each other's place; ``before`` and ``after`` begin at the address."""
    for nop, jump in ((before, after), (after, before)):
        for size, nops in _NOPS.items():
            if nop[:size] in nops and len(jump) >= size and jump[0] == _JUMP_OPCODES[size]:
                return Switched(address, address + size + _JUMPS[size].unpack_from(jump)[1], size)
    return None


def keys_of(guest: Guest, data: Sequence[Span], branches: Sequence[Switched]) -> Mapping[Switched, int]:
    """The addresses of the keys of those that are static branches, by the entries of struct jump_entry in ``data``.

    An entry has the place, the target and the key, each as a distance from the field itself
    (include/linux/jump_label.h); the key's is as long as a word.
    """
    keys: dict[Switched, int] = {}
    for span in data if branches else ():
        memory = guest.read_memory(span.start, span.size)
        word = struct.Struct("<q" if span.start >> 32 else "<i")
        # Distances from the span's beginning: the loop runs over a million fields.
        wanted = {branch.address - span.start: branch for branch in branches}
        fields = array("i", memory[: len(memory) // 4 * 4])
        entries = [at for at, field in zip(range(0, len(memory), 4), fields, strict=False) if at + field in wanted]
        for entry in entries:
            branch = wanted[entry + fields[entry // 4]]
            if entry + 8 + word.size > len(memory):
                continue
            if span.start + entry + 4 + fields[entry // 4 + 1] == branch.target:
                keys[branch] = (span.start + entry + 8 + word.unpack_from(memory, entry + 8)[0]) & ~_FLAGS
    return keys


def tracepoint_of(guest: Guest, symbols: Symbols, key: int) -> str | None:
    """The name of the tracepoint that a static key is part of; None where it is part of none."""
    size, code = (8, "Q") if key >> 32 else (4, "I")
    words = struct.unpack(f"<{_TRACEPOINT_WORDS}{code}", guest.read_memory(key, _TRACEPOINT_WORDS * size))
    for name in (symbols.at(word) for word in words if word):
        for prefix in _TRACEPOINT_FUNCTIONS:
            if name.startswith(prefix) and "+" not in name:
                return name.removeprefix(prefix)
    return None
