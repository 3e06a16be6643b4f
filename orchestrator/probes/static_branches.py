# SPDX-License-Identifier: GPL-2.0-only
"""Static branches: whether a changed place of the kernel's text is one, and whose.

The kernel switches these itself. A table entry is found by its content, as kernels without CONFIG_KALLSYMS_ALL do not
list the table.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from orchestrator.artifacts.function_entry import NOPS5
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import Span

LONGEST = 5


_NOPS = {2: (b"\x66\x90", b"\x89\xf6"), LONGEST: NOPS5}
"""By size (BYTES_NOP2 on 64 and on 32 bits of arch/x86/include/asm/nops.h)."""


_JUMPS = {2: struct.Struct("<Bb"), LONGEST: struct.Struct("<Bi")}


_JUMP_OPCODES = {2: 0xEB, LONGEST: 0xE9}


_FLAGS = 3
"""Low bits of a key's address in the table, which are flags."""


_TRACEPOINT_WORDS = 8
"""Words from a tracepoint's key that include its functions (struct tracepoint of include/linux/tracepoint-defs.h)."""


_TRACEPOINT_FUNCTIONS = ("__SCT__tp_func_", "__traceiter_")


class Switched(NamedTuple):
    """An apparently switched static branch: a nop became a jump to ``target``, or the reverse."""

    address: int
    target: int
    size: int


def switched_at(address: int, before: bytes, after: bytes) -> Switched | None:
    """The switched branch if a nop and a jump replaced each other; ``before`` and ``after`` begin at the address."""
    for nop, jump in ((before, after), (after, before)):
        for size, nops in _NOPS.items():
            if nop[:size] in nops and len(jump) >= size and jump[0] == _JUMP_OPCODES[size]:
                return Switched(address, address + size + _JUMPS[size].unpack_from(jump)[1], size)
    return None


def keys_of(guest: Guest, data: Sequence[Span], branches: Sequence[Switched]) -> Mapping[Switched, int]:
    """The key addresses of those branches that are static branches, from the entries of struct jump_entry in ``data``.

    An entry has the place, the target and the key, each as a distance from its own field (include/linux/jump_label.h);
    the key's is a word long.
    """
    keys: dict[Switched, int] = {}
    for span in data if branches else ():
        memory = guest.read_memory(span.start, span.size)
        word = struct.Struct("<q" if span.start >> 32 else "<i")
        # Distances from the span's start: the loop runs over a million fields.
        switcheds = {branch.address - span.start: branch for branch in branches}
        fields = array("i", memory[: len(memory) // 4 * 4])
        entries = [at for at, field in zip(range(0, len(memory), 4), fields, strict=False) if at + field in switcheds]
        for entry in entries:
            branch = switcheds[entry + fields[entry // 4]]
            if entry + 8 + word.size > len(memory):
                continue
            if span.start + entry + 4 + fields[entry // 4 + 1] == branch.target:
                keys[branch] = (span.start + entry + 8 + word.unpack_from(memory, entry + 8)[0]) & ~_FLAGS
    return keys


def tracepoint_of(guest: Guest, symbols: Symbols, key: int) -> str | None:
    """The name of the tracepoint that contains a static key, or None."""
    size, code = (8, "Q") if key >> 32 else (4, "I")
    words = struct.unpack(f"<{_TRACEPOINT_WORDS}{code}", guest.read_memory(key, _TRACEPOINT_WORDS * size))
    names = [name for name in map(symbols.at, filter(None, words)) if "+" not in name]
    return next((name.removeprefix(by) for name in names for by in _TRACEPOINT_FUNCTIONS if name.startswith(by)), None)
