# SPDX-License-Identifier: GPL-2.0-only
"""x86 machine code: decoding, where functions begin, direct calls, and the dispatch of system calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from orchestrator.arch import CALL, Arch
from orchestrator.artifacts.kernel_code import KernelCode


@dataclass(frozen=True)
class Memory:
    """A memory operand; registers are names of 32 or 64 bits, empty if absent."""

    base: str
    index: str
    scale: int
    displacement: int


_ESCAPE = 0x0F  # begins an opcode of two bytes

Operand = str | int | Memory
"""A register's name, a number (not negative), or memory."""


@dataclass(frozen=True)
class Instruction:
    """A decoded instruction, ``name`` in Intel's syntax.

    ``opcode`` is one byte, or two from 0f on; ``prefixes`` come before it, without REX.
    """

    address: int
    size: int
    name: str
    operands: tuple[Operand, ...]
    opcode: bytes = b""
    prefixes: bytes = b""

    @property
    def end(self) -> int:
        return self.address + self.size


def decoded(code: bytes, address: int, word: int) -> Iterator[Instruction]:
    """The instructions of code in order, up to bytes that do not decode. ``word`` is 4 or 8 bytes."""
    for one in _decoder(word).disasm(code, address):
        operands = tuple(_operand(operand, word) for operand in one.operands)
        opcode = bytes(one.opcode[: 2 if one.opcode[0] == _ESCAPE else 1])
        prefixes = bytes(filter(None, one.prefix))
        yield Instruction(one.address, one.size, one.mnemonic.split()[-1], operands, opcode, prefixes)


def disassembled(code: bytes, address: int, word: int) -> str:
    """One instruction in Intel's syntax; its bytes if they do not decode."""
    for one in _decoder(word).disasm(code, address):
        return f"{one.mnemonic} {one.op_str}".rstrip()
    return f".byte {code.hex(' ')}"


@lru_cache(maxsize=2)
def _decoder(word: int) -> Any:
    import capstone  # takes a tenth of a second, which commands that decode nothing save

    decoder = capstone.Cs(capstone.CS_ARCH_X86, {4: capstone.CS_MODE_32, 8: capstone.CS_MODE_64}[word])
    decoder.detail = True
    return decoder


def _operand(operand: Any, word: int) -> Operand:
    from capstone import x86

    if operand.type == x86.X86_OP_REG:
        return _register(operand.reg)
    if operand.type == x86.X86_OP_IMM:
        return int(operand.imm) % (1 << 8 * word)  # capstone gives kernel addresses as negative numbers
    memory = operand.mem
    return Memory(_register(memory.base), _register(memory.index), memory.scale, memory.disp)


def _register(register: int) -> str:
    return str(_decoder(8).reg_name(register) or "") if register else ""


# Where a function's own code begins, after an endbr and the function tracer's nop or call.
#
# A probe "at the function's entry" goes there: 0, 4, 5 or 9 bytes after the symbol. It depends on the function as well
# as on the kernel: a function that is only called directly has no endbr, and one that is notrace has no nop.

LONGEST = 9
"""Bytes to look at: an endbr and the function tracer's call or nop."""

ENDBR_BYTES, TRACER_BYTES = 4, 5

# endbr64, endbr32, and the nops with which kernels since 5.18 replace an endbr that nothing jumps to: an older and a
# newer gen_endbr_poison() of arch/x86/include/asm/ibt.h.
_ENDBR = frozenset(bytes.fromhex(code) for code in ("f30f1efa", "f30f1efb", "660f1f00", "0f1f40d6"))

NOPS5 = tuple(bytes.fromhex(code) for code in ("0f1f440000", "3e8d742600", "6666666690", "3e8d442000"))
"""Where the function tracer's call or a static branch's jump is not: today's nops of x86_64 and i386 first.

Before Linux 5.13 (commit a89dfde3dc3c) the kernel chose by CPU as it booted: NOP5_ATOMIC of P6, GENERIC, K8 and K7 in
arch/x86/include/asm/nops.h.
"""


def entry_places(code: bytes) -> set[int]:
    """Offsets at which nothing of a function has run yet; ``code`` is from memory, with the function tracer off."""
    endbr = _endbr_bytes(code)
    traced = code[endbr : endbr + TRACER_BYTES] in NOPS5
    return {0, endbr, endbr + TRACER_BYTES if traced else endbr}


def entry_offset(code: KernelCode, symbol: str) -> int | None:
    """Bytes from a kernel function's symbol to its own code; None unless exactly one function has the name."""
    start, fentry = code.function(symbol), code.function("__fentry__")
    if start is None:
        return None
    first = code.read(start, LONGEST)
    if not first:
        return None
    endbr = _endbr_bytes(first)
    # Before the kernel starts, the tracer's nop is still the call that the compiler emitted.
    call = first[endbr : endbr + TRACER_BYTES]
    target = start + endbr + TRACER_BYTES + int.from_bytes(call[1:], "little", signed=True)
    calls_tracer = call[:1] == bytes([CALL]) and fentry is not None and (target - fentry) % (1 << 32) == 0
    return endbr + TRACER_BYTES if calls_tracer else max(entry_places(first))


def tracer_place(entry: int) -> int:
    """The offset of the function tracer's nop, after any endbr, given the offset of the function's own code."""
    return entry - TRACER_BYTES if entry >= TRACER_BYTES else entry


def _endbr_bytes(code: bytes) -> int:
    return ENDBR_BYTES if code[:ENDBR_BYTES] in _ENDBR else 0


# call, jmp and, after a byte 0f, the long conditional jumps; each followed by four bytes of distance from its end.
_BRANCH = re.compile(rb"[\xe8\xe9\x80-\x8f](?=(....))", re.DOTALL)


def direct_calls(code: KernelCode, function: int) -> Iterator[int]:
    """The addresses of calls of a function and jumps to it; of a million look-alikes one in 4 billion fits."""
    start, end = code.address("_stext"), code.address("_etext")
    if start is None or end is None:
        return
    for found in _BRANCH.finditer(code.read(start, end - start)):
        behind = start + found.start() + TRACER_BYTES
        if (behind + int.from_bytes(found[1], "little", signed=True) - function) % (1 << 32) == 0:
            yield behind - TRACER_BYTES


# Which function a system call's number dispatches to, from the kernel's own code.
#
# The dispatch is a switch since Linux 6.9 and in stable kernels (x64_sys_call, ia32_sys_call; commit 1e3ad78334a6;
# 6.1.176 has it), and a table of pointers before. A kernel with a switch may keep ``sys_call_table`` for the tracing of
# system calls; on x86_64 that is not the table of int80.
#
# A compiler turns a switch into compares and jumps, or into a jump table. So the switch is executed symbolically for
# one number: starting from the register with the number, up to the first call or jump out of it. That leads to the
# function.


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

# Of the two numbers compared, as unsigned and as signed.
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

    def _next(self, one: Instruction) -> int:
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
        elif one.name not in {"push", "pop", "nop", "endbr32", "endbr64"}:
            self._write(one)
        return one.end

    def _write(self, one: Instruction) -> None:
        """Apply an instruction's effect on a register or the flags; an unknown result makes them unknown."""
        if one.name not in {"mov", "movabs", "movsxd", "movzx", "movsx", "lea"}:
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
