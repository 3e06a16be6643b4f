# SPDX-License-Identifier: GPL-2.0-only
"""x86 machine code: decoding, and direct calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from orchestrator.artifacts.function_entry import TRACER_BYTES
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
    for instruction in _decoder(word).disasm(code, address):
        operands = tuple(_operand(operand, word) for operand in instruction.operands)
        opcode = bytes(instruction.opcode[: 2 if instruction.opcode[0] == _ESCAPE else 1])
        prefixes = bytes(filter(None, instruction.prefix))
        mnemonic = instruction.mnemonic.split()[-1]
        yield Instruction(instruction.address, instruction.size, mnemonic, operands, opcode, prefixes)


def disassembled(code: bytes, address: int, word: int) -> str:
    """One instruction in Intel's syntax; its bytes if they do not decode."""
    for instruction in _decoder(word).disasm(code, address):
        return f"{instruction.mnemonic} {instruction.op_str}".rstrip()
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


# call, jmp and, after a byte 0f, the long conditional jumps; each followed by four bytes of distance from its end.
_BRANCH = re.compile(rb"[\xe8\xe9\x80-\x8f](?=(....))", re.DOTALL)


def direct_calls(code: KernelCode, function: int) -> Iterator[int]:
    """The addresses of calls of a function and jumps to it; of a million look-alikes one in 4 billion fits."""
    start, end = code.address("_stext"), code.address("_etext")
    if start is None or end is None:
        return
    for match in _BRANCH.finditer(code.read(start, end - start)):
        behind = start + match.start() + TRACER_BYTES
        if (behind + int.from_bytes(match[1], "little", signed=True) - function) % (1 << 32) == 0:
            yield behind - TRACER_BYTES
