# SPDX-License-Identifier: GPL-2.0-only
"""x86 machine code: instructions, where a function's own code begins, and where a function is called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from orchestrator.artifacts.kernel_code import KernelCode

# x86 machine code as instructions.


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
    return str(_decoder(8).reg_name(register) or "") if register else ""


# Where a function's own code begins, behind an endbr and what the function tracer has at its start.
#
# A probe "at the function's entry" goes there: 0, 4, 5 or 9 bytes behind the symbol. Which it is depends on the
# function as well as on the kernel: one that is only called directly has no endbr, one that is notrace no nop.

LONGEST = 9
"""Bytes to look at: an endbr and a call or nop of the function tracer's."""

ENDBR_BYTES, TRACER_BYTES = 4, 5

# endbr64, endbr32, and the nops that kernels since 5.18 put in place of an endbr that nothing jumps to: an older and a
# newer gen_endbr_poison() of arch/x86/include/asm/ibt.h.
_ENDBR = frozenset(bytes.fromhex(code) for code in ("f30f1efa", "f30f1efb", "660f1f00", "0f1f40d6"))

FTRACE_NOPS = (bytes.fromhex("0f1f440000"), bytes.fromhex("3e8d742600"))
"""The five-byte nops that stand for a disabled call of the function tracer, x86_64's and i386's."""

_CALL = b"\xe8"


def entry_places(code: bytes) -> set[int]:
    """Where nothing of a function has run yet, in bytes behind its symbol: its code begins at the last of them.

    ``code`` is from memory, the function tracer being off.
    """
    endbr = _endbr_bytes(code)
    traced = code[endbr : endbr + TRACER_BYTES] in FTRACE_NOPS
    return {0, endbr, endbr + TRACER_BYTES if traced else endbr}


def entry_offset(code: KernelCode, symbol: str) -> int | None:
    """Bytes before the code of a function of the kernel; None where it has not one such function."""
    start, fentry = code.function(symbol), code.function("__fentry__")
    if start is None:
        return None
    first = code.read(start, LONGEST)
    if not first:
        return None
    endbr = _endbr_bytes(first)
    # Before the kernel has started, the tracer's nop is the call that the compiler made.
    call = first[endbr : endbr + TRACER_BYTES]
    target = start + endbr + TRACER_BYTES + int.from_bytes(call[1:], "little", signed=True)
    calls_tracer = call[:1] == _CALL and fentry is not None and (target - fentry) % (1 << 32) == 0
    return endbr + TRACER_BYTES if calls_tracer else max(entry_places(first))


def tracer_place(entry: int) -> int:
    """Where the function tracer's nop is, which is behind any endbr, for code that begins ``entry`` bytes in."""
    return entry - TRACER_BYTES if entry >= TRACER_BYTES else entry


def _endbr_bytes(code: bytes) -> int:
    return ENDBR_BYTES if code[:ENDBR_BYTES] in _ENDBR else 0


# Where a kernel's code calls a function, or jumps to it, by its address.

_BYTES = 5
# call, jmp, and behind a byte 0f the long conditional jumps; each with four bytes of distance from its own end.
_BRANCH = re.compile(rb"[\xe8\xe9\x80-\x8f](?=(....))", re.DOTALL)


def direct_calls(code: KernelCode, function: int) -> Iterator[int]:
    """The addresses of the calls of a function, and of jumps to it; there are none of calls through a pointer.

    Bytes that only look like such a call are not told apart: among some million of them, one in 4 billion fits.
    """
    start, end = code.address("_stext"), code.address("_etext")
    if start is None or end is None:
        return
    for found in _BRANCH.finditer(code.read(start, end - start)):
        behind = start + found.start() + _BYTES
        if (behind + int.from_bytes(found[1], "little", signed=True) - function) % (1 << 32) == 0:
            yield behind - _BYTES
