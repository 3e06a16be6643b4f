# SPDX-License-Identifier: GPL-2.0-only
"""A tracepoint of a guest's kernel, by name: its static branch, its key, and the functions that a hit calls.

All of it is read from outside, from ``struct tracepoint`` (include/linux/tracepoint-defs.h), without a module.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.arch import JMP
from orchestrator.catalog.data import did_you_mean
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import Observation
from orchestrator.probes.point import ProbePoint, find_static_branch
from orchestrator.probes.symbols import Symbols

ITERATOR, STUB, _CALL = "__traceiter_", "__probestub_", "__SCT__tp_func_"
"""Functions of every tracepoint: the stub exists since Linux 6.4, the static call on architectures that have one."""


_NAMES, _STUBS = re.compile(ITERATOR + r"\w{1,100}"), re.compile(STUB + r"\w{1,100}")


_ITERATOR_FIELD = 5
"""Words before ``iterator``: name, key (two), static_call_key, static_call_tramp."""


_REGISTERING, _REGISTERS = "sys_enter", "syscall_regfunc"
"""A tracepoint of every kernel whose ``regfunc`` is known."""


_KEY_FIELD = 1


_TYPE_BITS = 3
"""Low bits of a key's second word, which are not part of the address of its first jump_entry."""


_MOST_FUNCTIONS = 8


_LARGEST_TEXT = 32 << 20
"""Bytes from the kernel's text to its init code; Debian's for i386 has 9 MB."""


@dataclass(frozen=True)
class Tracepoint:
    """A tracepoint: the addresses of its struct, its functions and its static call (None if it has none).

    ``branch`` is its first static branch. Several functions may contain the tracepoint: their branches are switched
    together.
    """

    name: str
    address: int
    functions_at: int
    static_call: int | None
    branch: ProbePoint

    def observe(self, guest: Guest, symbols: Symbols) -> Observation:
        """The branch's bytes, whether the key is enabled, and the function or functions that a hit calls (``called``).

        Raises EvidenceError if the static call disagrees with the list of functions.
        """
        live = guest.read_memory(self.branch.address, len(self.branch.original))
        word = _word_of(self.address)
        (enabled,) = struct.unpack("<i", guest.read_memory(self.address + _KEY_FIELD * word.size, 4))
        # Its array ends with a null (struct tracepoint_func: function, data, priority).
        array = _number(guest, self.functions_at, word)
        functions: list[int] = []
        while array and (function := _number(guest, array + 3 * word.size * len(functions), word)):
            functions.append(function)
            if len(functions) > _MOST_FUNCTIONS:
                raise EvidenceError(f"the tracepoint {self.name} calls more than {_MOST_FUNCTIONS} functions")
        called = ", ".join(symbols.at(function) for function in functions)
        if self.static_call is not None and functions:
            self._check_call(guest, symbols, functions)
        return Observation(live, "[ENABLED]" if enabled > 0 else None, called=called or None)

    def _check_call(self, guest: Guest, symbols: Symbols, functions: Sequence[int]) -> None:
        """A single function is called directly; several are called through the iterator (tracepoint_update_call())."""
        assert self.static_call is not None
        code = guest.read_memory(self.static_call, 5)
        target = self.static_call + len(code) + int.from_bytes(code[1:], "little", signed=True)
        expected = functions[0] if len(functions) == 1 else symbols.address(ITERATOR + self.name)
        if code[0] != JMP or target != expected:
            raise EvidenceError(
                f"the static call of the tracepoint {self.name} is {code.hex(' ')} at {self.static_call:#x}, "
                f"and does not lead to {symbols.at(expected)}"
            )


def find_tracepoint(guest: Guest, symbols: Symbols, name: str) -> Tracepoint:
    """A tracepoint of the kernel that is off. Raises EvidenceError if there is none, or if it is on."""
    iterators = symbols.functions_like(_NAMES)
    iterator = iterators.get(ITERATOR + name)
    if iterator is None:
        hint = did_you_mean(name, [function.removeprefix(ITERATOR) for function in iterators])
        raise EvidenceError(f"the guest's kernel has no tracepoint {name}", hint=hint)
    word = _word_of(iterator)
    address = _struct_at(guest, symbols, name, iterator)
    entries = _number(guest, address + (_KEY_FIELD + 1) * word.size, word) & ~_TYPE_BITS
    if not entries:
        raise EvidenceError(f"no code of the guest's kernel has the tracepoint {name}")
    # struct jump_entry begins with the distance from itself to the branch.
    (distance,) = struct.unpack("<i", guest.read_memory(entries, 4))
    return Tracepoint(
        name,
        address,
        address + _functions_field(guest, symbols, word, iterators) * word.size,
        symbols.address(_CALL + name) if symbols.functions(_CALL + name) else None,
        find_static_branch(guest, entries + distance, name),
    )


def _functions_field(guest: Guest, symbols: Symbols, word: struct.Struct, iterators: Mapping[str, int]) -> int:
    """Words before ``funcs``: those before the iterator, the iterator, and the stub if there is one.

    Up to Linux 6.13 regfunc and unregfunc come in between; later kernels have them in a struct of their own (``ext``).
    """
    iterator = iterators.get(ITERATOR + _REGISTERING)
    stubs = 1 if symbols.functions_like(_STUBS) else 0
    behind = _ITERATOR_FIELD + 1 + stubs
    if iterator is not None and symbols.functions(_REGISTERS):
        registering = _struct_at(guest, symbols, _REGISTERING, iterator)
        if _number(guest, registering + behind * word.size, word) != symbols.address(_REGISTERS):
            return behind
    return behind + 2


def _struct_at(guest: Guest, symbols: Symbols, name: str, iterator: int) -> int:
    """The address of the struct; found by its content, as kernels without CONFIG_KALLSYMS_ALL list no data."""
    listed, word = symbols.anywhere(f"__tracepoint_{name}"), _word_of(iterator)
    if listed:
        return listed
    start, end = symbols.anywhere("_etext"), symbols.anywhere("_sinittext")
    if start is None or end is None or not 0 < end - start <= _LARGEST_TEXT:
        raise EvidenceError("the guest's kernel does not list where its data is (_etext, _sinittext)")
    memory = guest.read_memory(start, end - start)
    terminated = name.encode() + b"\0"
    for match in re.finditer(re.escape(word.pack(iterator)), memory):
        struct_at = match.start() - _ITERATOR_FIELD * word.size
        if struct_at < 0:
            continue
        (text,) = word.unpack_from(memory, struct_at)
        if memory[text - start : text - start + len(terminated)] == terminated:
            return start + struct_at
    raise EvidenceError(f"the tracepoint {name} is nowhere in the data of the guest's kernel")


def _word_of(address: int) -> struct.Struct:
    return struct.Struct("<Q" if address >> 32 else "<I")


def _number(guest: Guest, address: int, word: struct.Struct) -> int:
    (number,) = word.unpack(guest.read_memory(address, word.size))
    return int(number)
