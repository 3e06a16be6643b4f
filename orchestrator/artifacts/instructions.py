# SPDX-License-Identifier: GPL-2.0-only
"""x86 machine code as instructions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True)
class Memory:
    """A memory operand: the registers' names, 32 or 64 bit, empty where there is none."""

    base: str
    index: str
    scale: int
    displacement: int


_ESCAPE = 0x0F
"""Begins an opcode of two bytes."""

Operand = str | int | Memory
"""A register's name, a number (not negative), or memory."""


@dataclass(frozen=True)
class Instruction:
    """An instruction: ``name`` as Intel writes it, without prefixes.

    ``opcode`` is its byte, or two where the first is 0f, behind the ``prefixes`` (those that are no REX); ``modrm`` is
    0 where it has none.
    """

    address: int
    size: int
    name: str
    operands: tuple[Operand, ...]
    opcode: bytes = b""
    modrm: int = 0
    prefixes: bytes = b""

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.address + self.size


def decoded(code: bytes, address: int, word: int) -> Iterator[Instruction]:
    """The instructions of code one after the other, up to bytes that are none. ``word`` is 4 or 8 bytes."""
    for one in _decoder(word).disasm(code, address):
        operands = tuple(_operand(operand, word) for operand in one.operands)
        opcode = bytes(one.opcode[: 2 if one.opcode[0] == _ESCAPE else 1])
        prefixes = bytes(filter(None, one.prefix))
        yield Instruction(one.address, one.size, one.mnemonic.split()[-1], operands, opcode, one.modrm, prefixes)


def disassembled(code: bytes, address: int, word: int) -> str:
    """One instruction as text, in Intel's syntax; its bytes where they are none."""
    for one in _decoder(word).disasm(code, address):
        return f"{one.mnemonic} {one.op_str}".rstrip()
    return f".byte {code.hex(' ')}"


@lru_cache(maxsize=2)
def _decoder(word: int) -> Any:
    import capstone  # takes a tenth of a second, and a command that decodes nothing does not wait for it

    decoder = capstone.Cs(capstone.CS_ARCH_X86, {4: capstone.CS_MODE_32, 8: capstone.CS_MODE_64}[word])
    decoder.detail = True
    return decoder


def _operand(operand: Any, word: int) -> Operand:
    from capstone import x86

    if operand.type == x86.X86_OP_REG:
        return _register(operand.reg)
    if operand.type == x86.X86_OP_IMM:
        return int(operand.imm) % (1 << 8 * word)  # addresses of the kernel are negative to capstone
    memory = operand.mem
    return Memory(_register(memory.base), _register(memory.index), memory.scale, memory.disp)


def _register(register: int) -> str:
    """A register's name; empty for none."""
    return str(_decoder(8).reg_name(register) or "") if register else ""
