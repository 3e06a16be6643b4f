# SPDX-License-Identifier: GPL-2.0-only
"""Which function a system call's number dispatches to, from the kernel's own code.

The dispatch is a switch since Linux 6.9 and in stable kernels (x64_sys_call, ia32_sys_call; commit 1e3ad78334a6;
6.1.176 has it), and a table of pointers before. A kernel with a switch may keep ``sys_call_table`` for the tracing of
system calls; on x86_64 that is not the table of int80.

A compiler turns a switch into compares and jumps, or into a jump table. So the switch is executed symbolically for
one number: starting from the register with the number, up to the first call or jump out of it. That leads to the
function.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne

from orchestrator.arch import Arch
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.machine_code import Instruction, Memory, Operand, decoded

_SWITCHES: dict[Arch, str] = {"i386": "ia32_sys_call", "x86_64": "x64_sys_call"}
_TABLES: dict[tuple[int, Arch], str] = {
    (4, "i386"): "sys_call_table",
    (8, "i386"): "ia32_sys_call_table",
    (8, "x86_64"): "sys_call_table",
}
_WRAPPERS: dict[Arch, re.Pattern[str]] = {
    "i386": re.compile(r"__ia32_(compat_)?sys_"),
    "x86_64": re.compile(r"__x64_sys_"),
}
_NUMBER_AT = {4: "edx", 8: "esi"}  # the second argument's register: of -mregparm=3, and of the x86_64 ABI
_LONGEST_WAY = 200  # instructions for one number; a balanced tree of compares for 450 numbers takes some 40
_LONGEST_INSTRUCTION = 15

# Whether a conditional jump is taken, given the two numbers that were compared: ja... as unsigned, jg... as signed.
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


class UnknownDispatchError(Exception):
    """The kernel's dispatch has an unknown form; the text says where."""


def dispatched(code: KernelCode, numbers: Arch, number: int) -> str:
    """The function that system call ``number`` enters, by the dispatch's own name. Raises UnknownDispatchError."""
    switch = code.function(_SWITCHES[numbers])
    target = _pointed_to(code, numbers, number) if switch is None else _Switch(code, switch).target(number)
    names = code.names_at(target)
    if not names:
        raise UnknownDispatchError(f"number {number} leads to {target:#x}, where no function begins")
    return min(names, key=lambda name: (not _WRAPPERS[numbers].match(name), name))


def _pointed_to(code: KernelCode, numbers: Arch, number: int) -> int:
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
    def __init__(self, code: KernelCode, start: int) -> None:
        self._code = code
        self._start, self._end = start, code.following(start) or start
        self._registers: dict[str, int] = {}
        self._compared: tuple[int, int] | None = None

    def target(self, number: int) -> int:
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

    def _next(self, instruction: Instruction) -> int:
        condition = _CONDITIONS.get(instruction.name)
        if condition is not None or instruction.name in ("call", "jmp"):
            target = self._value(instruction.operands[0])
            if isinstance(instruction.operands[0], Memory) and target is not None:
                target = self._code.number(target)
            if target is None or (condition is not None and self._compared is None):
                raise UnknownDispatchError(
                    f"what {instruction.name} at {instruction.address:#x} depends on is not known"
                )
            return (
                target if condition is None or self._compared is None or condition(*self._compared) else instruction.end
            )
        if instruction.name in ("cmp", "test"):
            left, right = map(self._value, instruction.operands)
            self._compared = None
            if (
                left is not None
                and right is not None
                and not any(isinstance(operand, Memory) for operand in instruction.operands)
            ):
                self._compared = (
                    ((left & right) & _WORD, 0) if instruction.name == "test" else (left & _WORD, right & _WORD)
                )
        elif instruction.name not in {"push", "pop", "nop", "endbr32", "endbr64"}:
            self._write(instruction)
        return instruction.end

    def _write(self, instruction: Instruction) -> None:
        """Apply an instruction's effect on a register or the flags; an unknown result makes them unknown."""
        if instruction.name not in {"mov", "movabs", "movsxd", "movzx", "movsx", "lea"}:
            self._compared = None
        if not instruction.operands or not isinstance(instruction.operands[0], str):
            return
        register = _family(instruction.operands[0])
        values = [self._value(operand) for operand in instruction.operands]
        left, right = values[0], values[-1]
        result: int | None = None
        if instruction.name == "lea" or (
            instruction.name == "mov" and not isinstance(instruction.operands[-1], Memory)
        ):
            result = right
        elif instruction.name in ("add", "sub") and left is not None and right is not None:
            result = left + right if instruction.name == "add" else left - right
            if instruction.name == "sub":
                self._compared = (left & _WORD, right & _WORD)
        self._registers.pop(register, None)
        if result is not None:
            self._registers[register] = result & _WORD

    def _value(self, operand: Operand) -> int | None:
        """The value of a number or register, or the address of a memory operand; None if unknown."""
        if isinstance(operand, int):
            return operand
        if isinstance(operand, str):
            return self._registers.get(_family(operand))
        parts = [operand.displacement]
        for register, factor in ((operand.base, 1), (operand.index, operand.scale)):
            if register and register not in {"eiz", "riz"}:
                content = self._registers.get(_family(register))
                if content is None:
                    return None
                parts.append(content * factor)
        return sum(parts) % (1 << 8 * self._code.word)


_WORD = 0xFFFFFFFF  # A number is 32 bits wide on both architectures


def _family(register: str) -> str:
    """One name for a register of either width: ``esi`` and ``rsi`` are ``si``."""
    return register[1:] if register[:1] in ("e", "r") and register[1:2].isalpha() else register


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
