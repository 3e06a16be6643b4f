# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel's image lists: places of its text with a special treatment, and the functions of system calls."""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne

from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode
from orchestrator.artifacts.machine_code import Instruction, Memory, Operand, decoded
from orchestrator.catalog.kernels import Arch

# What a kernel's image lists of its text: where it may fault, reports a bug, may branch, and must not be probed.
#
# A kernel without CONFIG_KALLSYMS_ALL (Debian's for i386) has no symbols of these tables. What has a section of its
# own is read there; the others are found by their content.

_EXCEPTIONS, _EXCEPTION = "__ex_table", 12
"""struct exception_table_entry: the place, its fixup and data, 4 bytes each (arch/x86/include/asm/extable.h)."""
_BUGS, _BUG = "__bug_table", 12
"""struct bug_entry: the place, and with CONFIG_DEBUG_BUGVERBOSE file, line and flags (include/asm-generic/bug.h)."""
_INIT_DATA = ".init.data"
_LISTED = ("__start_kprobe_blacklist", "__stop_kprobe_blacklist")
_ALWAYS_LISTED = "kprobe_int3_handler"
"""A NOKPROBE_SYMBOL of arch/x86/kernel/kprobes/core.c."""
_MOST_LISTED = 4096
_MOST_ERROR_TYPES = 16


def faulting_places(code: KernelCode, start: int, end: int) -> Sequence[int]:
    """The instructions between two addresses that may fault and are fixed up, in order."""
    return sorted(place for place in code.sites(_EXCEPTIONS)[:: _EXCEPTION // 4] if start <= place < end)


def bug_places(code: KernelCode, start: int, end: int) -> frozenset[int]:
    """The instructions between two addresses that report a BUG() or a WARN().

    An entry has the place as a distance from itself, or as a pointer (CONFIG_GENERIC_BUG_RELATIVE_POINTERS).
    """
    table = code.sections.get(_BUGS)
    if table is None:
        return frozenset()
    fields = struct.unpack_from(f"<{table.size // 4}i", code.image, table.place)
    pointers = (field % (1 << 8 * code.word) for field in fields[:: _BUG // 4])
    return frozenset(place for place in (*pointers, *code.sites(_BUGS)[:: _BUG // 4]) if start <= place < end)


def static_branches(code: KernelCode, start: int, end: int) -> Mapping[int, int]:
    """The places between two addresses that may be static branches, and where each leads.

    An entry of struct jump_entry has place and target as distances from the fields (include/linux/jump_label.h). The
    table is among the read-only data, of which other fields may look alike: a static branch is a nop or a jump.
    """
    places, targets = code.jump_entries
    near = slice(bisect_left(places, start), bisect_left(places, end))
    return {place: target for place, target in zip(places[near], targets[near], strict=True) if start <= target < end}


def unprobed_functions(code: KernelCode) -> frozenset[int] | None:
    """The functions that are marked as not to be probed (NOKPROBE_SYMBOL); None where the image's list is not found."""
    first, behind = (code.address(name) for name in _LISTED)
    if first is not None and behind is not None and 0 <= behind - first <= _MOST_LISTED * code.word:
        return frozenset(_pointers(code, first, (behind - first) // code.word))
    return _around_known(code)


def _around_known(code: KernelCode) -> frozenset[int] | None:
    """The pointers to functions around that to one that is always in the list."""
    part, known = code.sections.get(_INIT_DATA), code.function(_ALWAYS_LISTED)
    if part is None or known is None:
        return None
    data = code.image[part.place : part.place + part.size]
    pattern = known.to_bytes(code.word, "little")
    # The function tracer's list, which has it as well, is before.
    at = data.rfind(pattern)
    if at < 0 or at % code.word:
        return None
    words = _pointers(code, part.address, part.size // code.word)
    functions = {one.address for one in code.symbols if one.type in FUNCTION_TYPES}

    def is_function(number: int) -> bool:
        return 0 <= number < len(words) and words[number] in functions

    first = behind = at // code.word
    while is_function(first - 1):
        first -= 1
    while is_function(behind):
        behind += 1
    # The list of functions whose errors may be injected follows: a function and a small number in turn.
    if behind < len(words) and words[behind] < _MOST_ERROR_TYPES and is_function(behind + 1):
        behind -= 1
    return frozenset(words[first:behind])


def _pointers(code: KernelCode, address: int, count: int) -> Sequence[int]:
    content = code.read(address, count * code.word)
    return [one for (one,) in struct.iter_unpack("<I" if code.word == 4 else "<Q", content)]


# Which function does a system call's number go to? The kernel's own dispatch says it.
#
# It is a switch since Linux 6.9 and in stable kernels (x64_sys_call, ia32_sys_call; commit 1e3ad78334a6; 6.1.176 has
# it), and a table of pointers before. A kernel with a switch may keep ``sys_call_table`` for the tracing of system
# calls; on x86_64 that is not the table of int80.
#
# A compiler makes a switch into compares and jumps, or into a table of jumps. So the switch is followed for one
# number: its instructions are carried out on the register with the number, as far as the first call out of it. That is
# the function.

Numbers = Arch
"""Whose numbers a system call entry takes."""

_SWITCHES: dict[Numbers, str] = {"i386": "ia32_sys_call", "x86_64": "x64_sys_call"}
_TABLES: dict[tuple[int, Numbers], str] = {
    (4, "i386"): "sys_call_table",
    (8, "i386"): "ia32_sys_call_table",
    (8, "x86_64"): "sys_call_table",
}
_WRAPPERS: dict[Numbers, re.Pattern[str]] = {
    "i386": re.compile(r"__ia32_(compat_)?sys_"),
    "x86_64": re.compile(r"__x64_sys_"),
}
_NUMBER_AT = {4: "edx", 8: "esi"}
"""The second argument's register: of -mregparm=3, and of the x86_64 ABI."""

_LONGEST_WAY = 200
"""Instructions of a switch for one number; a balanced tree of compares for 450 numbers takes some 40."""
_LONGEST_INSTRUCTION = 15

# Of the two numbers compared, as unsigned and as signed ones.
_CONDITIONS: Mapping[str, Callable[[int, int], bool]] = {
    "je": eq,
    "jne": ne,
    "ja": gt,
    "jae": ge,
    "jb": lt,
    "jbe": le,
    "jg": lambda a, b: _signed(a) > _signed(b),
    "jge": lambda a, b: _signed(a) >= _signed(b),
    "jl": lambda a, b: _signed(a) < _signed(b),
    "jle": lambda a, b: _signed(a) <= _signed(b),
}
_IDLE = frozenset({"push", "pop", "nop", "endbr32", "endbr64"})
_KEEPS_FLAGS = frozenset({"mov", "movabs", "movsxd", "movzx", "movsx", "lea"})


class UnknownDispatchError(Exception):
    """The kernel's dispatch is in a form that is not known; the text says where."""


def dispatched(code: KernelCode, numbers: Numbers, number: int) -> str:
    """The function that a call of ``number`` enters, by its name. Raises UnknownDispatchError.

    Of several names for one function (a call without arguments has one for each entry) it is the entry's own.
    """
    switch = code.function(_SWITCHES[numbers])
    target = _pointed_to(code, numbers, number) if switch is None else _Switch(code, switch).target(number)
    names = code.names_at(target)
    if not names:
        raise UnknownDispatchError(f"number {number} leads to {target:#x}, where no function begins")
    return min(names, key=lambda name: (not _WRAPPERS[numbers].match(name), name))


def _pointed_to(code: KernelCode, numbers: Numbers, number: int) -> int:
    name = _TABLES[code.word, numbers]
    table = code.address(name)
    if table is None:
        raise UnknownDispatchError(f"there is neither a function {_SWITCHES[numbers]} nor a table {name}")
    end = code.following(table)
    place = table + number * code.word
    pointer = code.number(place) if end is None or place < end else None
    if pointer is None:
        raise UnknownDispatchError(f"{name} has no entry {number}")
    return pointer


class _Switch:
    """A dispatching function, carried out for one number as far as it calls another."""

    def __init__(self, code: KernelCode, start: int) -> None:
        self._code = code
        self._start, self._end = start, code.following(start) or start
        self._registers: dict[str, int] = {}
        self._compared: tuple[int, int] | None = None

    def target(self, number: int) -> int:
        """The address of the function called for this number. Raises UnknownDispatchError."""
        self._registers = {_family(_NUMBER_AT[self._code.word]): number}
        place = self._start
        for _ in range(_LONGEST_WAY):
            instruction = next(decoded(self._code.read(place, _LONGEST_INSTRUCTION), place, self._code.word), None)
            if instruction is None:
                raise UnknownDispatchError(f"there is no instruction at {place:#x}")
            following = self._next(instruction)
            if instruction.name == "call" and following == self._code.function("__fentry__"):
                following = instruction.end
            if not self._start <= following < self._end:
                return following
            place = following
        raise UnknownDispatchError(f"the switch at {self._start:#x} does not end for number {number}")

    def _next(self, one: Instruction) -> int:
        """Where to go on after carrying the instruction out."""
        condition = _CONDITIONS.get(one.name)
        if condition is not None or one.name in ("call", "jmp"):
            target = self._value(one.operands[0])
            if isinstance(one.operands[0], Memory) and target is not None:
                target = self._code.number(target)
            if target is None or (condition is not None and self._compared is None):
                raise UnknownDispatchError(f"what {one.name} at {one.address:#x} depends on is not known")
            return target if condition is None or self._compared is None or condition(*self._compared) else one.end
        if one.name in ("cmp", "test"):
            left, right = map(self._value, one.operands)
            self._compared = None
            if left is not None and right is not None and not any(isinstance(two, Memory) for two in one.operands):
                self._compared = ((left & right) & _WORD, 0) if one.name == "test" else (left & _WORD, right & _WORD)
        elif one.name not in _IDLE:
            self._write(one)
        return one.end

    def _write(self, one: Instruction) -> None:
        """Carry out what changes a register or the flags; what is not known is forgotten."""
        if one.name not in _KEEPS_FLAGS:
            self._compared = None
        if not one.operands or not isinstance(one.operands[0], str):
            return
        register = _family(one.operands[0])
        values = [self._value(operand) for operand in one.operands]
        left, right = values[0], values[-1]
        result: int | None = None
        if one.name == "lea" or (one.name == "mov" and not isinstance(one.operands[-1], Memory)):
            result = right
        elif one.name in ("add", "sub") and left is not None and right is not None:
            result = left + right if one.name == "add" else left - right
            if one.name == "sub":
                self._compared = (left & _WORD, right & _WORD)
        self._registers.pop(register, None)
        if result is not None:
            self._registers[register] = result & _WORD

    def _value(self, operand: Operand) -> int | None:
        """A number, a register's content, or the address that a memory operand means; None where it is not known."""
        if isinstance(operand, int):
            return operand
        if isinstance(operand, str):
            return self._registers.get(_family(operand))
        parts = [operand.displacement]
        for register, factor in ((operand.base, 1), (operand.index, operand.scale)):
            if register and register not in _NO_INDEX:
                content = self._registers.get(_family(register))
                if content is None:
                    return None
                parts.append(content * factor)
        return sum(parts) % (1 << 8 * self._code.word)


_WORD = 0xFFFFFFFF
"""A number is 32 bits wide on both architectures."""
_NO_INDEX = frozenset({"eiz", "riz"})


def _family(register: str) -> str:
    """One name for a register of either width: ``esi`` and ``rsi`` are ``si``."""
    return register[1:] if register[:1] in ("e", "r") and register[1:2].isalpha() else register


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
