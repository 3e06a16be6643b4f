# SPDX-License-Identifier: GPL-2.0-only
"""A tracepoint of a guest's kernel, by its name: its static branch, its key, and the functions that a hit calls.

All of it is read from outside, out of ``struct tracepoint`` (include/linux/tracepoint-defs.h), so it needs no module.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.catalog.spelling import nearest
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import Observation
from orchestrator.probes.point import ProbePoint, find_static_branch
from orchestrator.probes.symbols import Symbols

_ITERATOR, _STUB, _CALL = "__traceiter_", "__probestub_", "__SCT__tp_func_"
"""Functions that every tracepoint has; the stub since Linux 6.4, the static call where the architecture has any."""
_NAMES, _STUBS = re.compile(_ITERATOR + r"\w{1,100}"), re.compile(_STUB + r"\w{1,100}")
_ITERATOR_FIELD = 5
"""Words before ``iterator``: name, key (two), static_call_key, static_call_tramp."""
_REGISTERING, _REGISTERS = "sys_enter", "syscall_regfunc"
"""A tracepoint of each kernel whose ``regfunc`` is known."""
_KEY_FIELD = 1
_TYPE_BITS = 3
"""Low bits of a key's second word, which are no part of the address of its first jump_entry."""
_MOST_FUNCTIONS = 8
_JUMP = 0xE9
_LARGEST = 32 << 20
"""Bytes from the kernel's text to its init code; Debian's for i386 has 9 MB."""


@dataclass(frozen=True)
class Tracepoint:
    """A tracepoint: the addresses of its struct and of its static call (None: an array of functions alone).

    ``branch`` is its first static branch. Several functions may have the tracepoint: all their branches are switched at
    once.
    """

    name: str
    address: int
    functions_at: int
    static_call: int | None
    branch: ProbePoint

    def observe(self, guest: Guest, symbols: Symbols) -> Observation:
        """The branch's bytes, whether the key is enabled, and what a hit calls (``called``), one function or several.

        Raises EvidenceError where the static call leads elsewhere than the tracepoint's functions say.
        """
        live = guest.read_memory(self.branch.address, len(self.branch.original))
        word = _word_of(self.address)
        (enabled,) = struct.unpack("<i", guest.read_memory(self.address + _KEY_FIELD * word.size, 4))
        functions = self._functions(guest, word)
        called = ", ".join(symbols.at(function) for function in functions)
        if self.static_call is not None and functions:
            self._check_call(guest, symbols, functions)
        return Observation(live, "[ENABLED]" if enabled > 0 else None, called=called or None)

    def _functions(self, guest: Guest, word: struct.Struct) -> Sequence[int]:
        """The functions of its array, which ends with a null (struct tracepoint_func: function, data, priority)."""
        array = _number(guest, self.functions_at, word)
        found: list[int] = []
        while array and (function := _number(guest, array + 3 * word.size * len(found), word)):
            found.append(function)
            if len(found) > _MOST_FUNCTIONS:
                raise EvidenceError(f"the tracepoint {self.name} calls more than {_MOST_FUNCTIONS} functions")
        return found

    def _check_call(self, guest: Guest, symbols: Symbols, functions: Sequence[int]) -> None:
        """A single function is called itself; several are, by the iterator (tracepoint_update_call())."""
        assert self.static_call is not None
        code = guest.read_memory(self.static_call, 5)
        target = self.static_call + len(code) + int.from_bytes(code[1:], "little", signed=True)
        expected = functions[0] if len(functions) == 1 else symbols.address(_ITERATOR + self.name)
        if code[0] != _JUMP or target != expected:
            raise EvidenceError(
                f"the static call of the tracepoint {self.name} is {code.hex(' ')} at {self.static_call:#x}, "
                f"and does not lead to {symbols.at(expected)}"
            )


def find_tracepoint(guest: Guest, symbols: Symbols, name: str) -> Tracepoint:
    """A tracepoint of the kernel's own, off. Raises EvidenceError where there is none, or where it is on."""
    iterators = symbols.functions_like(_NAMES)
    iterator = iterators.get(_ITERATOR + name)
    if iterator is None:
        names = [one.removeprefix(_ITERATOR) for one in iterators]
        guess = nearest(name, names)
        raise EvidenceError(
            f"the guest's kernel has no tracepoint {name}", hint=f"did you mean {guess}?" if guess else ""
        )
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
    """Words before ``funcs``: those before the iterator, itself, and the stub where there is one.

    Up to Linux 6.13 regfunc and unregfunc are between them, which were put into a struct of their own (``ext``).
    """
    iterator = iterators.get(_ITERATOR + _REGISTERING)
    stubs = 1 if symbols.functions_like(_STUBS) else 0
    behind = _ITERATOR_FIELD + 1 + stubs
    if iterator is not None and symbols.functions(_REGISTERS):
        one = _struct_at(guest, symbols, _REGISTERING, iterator)
        if _number(guest, one + behind * word.size, word) != symbols.address(_REGISTERS):
            return behind
    return behind + 2


def _struct_at(guest: Guest, symbols: Symbols, name: str, iterator: int) -> int:
    return symbols.anywhere(f"__tracepoint_{name}") or _searched(guest, symbols, name, iterator)


def _searched(guest: Guest, symbols: Symbols, name: str, iterator: int) -> int:
    """The address of the struct by its content: kernels without CONFIG_KALLSYMS_ALL list no data."""
    word = _word_of(iterator)
    start, end = symbols.anywhere("_etext"), symbols.anywhere("_sinittext")
    if start is None or end is None or not 0 < end - start <= _LARGEST:
        raise EvidenceError("the guest's kernel does not list where its data is (_etext, _sinittext)")
    memory = guest.read_memory(start, end - start)
    wanted = name.encode() + b"\0"
    for place in _places(memory, word.pack(iterator)):
        struct_at = place - _ITERATOR_FIELD * word.size
        if struct_at < 0:
            continue
        (text,) = word.unpack_from(memory, struct_at)
        if memory[text - start : text - start + len(wanted)] == wanted:
            return start + struct_at
    raise EvidenceError(f"the tracepoint {name} is nowhere in the data of the guest's kernel")


def _places(memory: bytes, wanted: bytes) -> Iterator[int]:
    place = memory.find(wanted)
    while place >= 0:
        yield place
        place = memory.find(wanted, place + 1)


def _word_of(address: int) -> struct.Struct:
    return struct.Struct("<Q" if address >> 32 else "<I")


def _number(guest: Guest, address: int, word: struct.Struct) -> int:
    (number,) = word.unpack(guest.read_memory(address, word.size))
    return int(number)
