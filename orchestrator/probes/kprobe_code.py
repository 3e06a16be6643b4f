# SPDX-License-Identifier: GPL-2.0-only
"""What kprobes and djprobes can do with one instruction, by its opcode: step over it, emulate it, copy it.

The rules are those of arch/x86/kernel/kprobes/core.c since Linux 5.13 (commit 6256e668b7af), with what Linux 6.9
has changed ("Boost more instructions from grp2/3/4/5", "Prohibit kprobing on INT and UD"), and of the lab's
``kmods/lib/instruction.c``. What they make of a whole function is in ``placement``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

from pydantic import BeforeValidator

from orchestrator.artifacts.instructions import Instruction
from orchestrator.catalog.data import Fact, read

_ESCAPE = 0x0F
_CALL = 0xE8
_CS_OVERRIDE, _ADDRESS_SIZE = 0x2E, 0x67
_LONGEST = 15
"""Bytes of an instruction's copy, MAX_INSN_SIZE."""
_JUMP = 5
_MOVE_TO_SEGMENT, _SS = 0x8E, 2
_GROUP_5 = 0xFF
_INDIRECT_CALL, _FAR_CALL, _INDIRECT_JUMP, _FAR_JUMP = 2, 3, 4, 5
_IN_REGISTER = 3
_RETURNS = frozenset({0xC2, 0xC3, 0xCA, 0xCB, 0xCF})
_REPEATS = frozenset({0xF2, 0xF3})
_STRING = frozenset({*range(0x6C, 0x70), *range(0xA4, 0xA8), *range(0xAA, 0xB0)})
_UNDEFINED = frozenset({0x0B, 0xB9, 0xFF})
_EXCEPTIONS = frozenset({0xCC, 0xCD, 0xCE, 0xF1})


def _opcodes(ranges: object) -> frozenset[int]:
    assert isinstance(ranges, list)
    found: set[int] = set()
    for one in ranges:
        first, _, last = str(one).partition("-")
        found |= set(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(found)


def _table(rows: object) -> frozenset[int]:
    assert isinstance(rows, list)
    return frozenset(number for number, digit in enumerate("".join(rows)) if digit == "1")


_Opcodes = Annotated[frozenset[int], BeforeValidator(_opcodes)]


class _Rules(Fact):
    not_boosted: _Opcodes
    boosted_groups: dict[str, list[int]]
    boosted_two_byte: Annotated[frozenset[int], BeforeValidator(_table)]
    emulated: _Opcodes
    emulated_two_byte: _Opcodes
    refused: dict[str, str]
    immovable: _Opcodes
    immovable_two_byte: _Opcodes


@lru_cache(maxsize=1)
def _rules() -> _Rules:
    return _Rules.model_validate(read("kprobe_opcodes.yaml", __package__))


def kprobe_refusal(one: Instruction, *, since_6_9: bool) -> str | None:
    """Why no kprobe can be at an instruction of this kind (arch_copy_kprobe(), can_probe()); None where one can."""
    if since_6_9 and (one.opcode[0] in _EXCEPTIONS or (one.opcode[0] == _ESCAPE and one.opcode[1] in _UNDEFINED)):
        return "kprobes refuse an instruction that raises an exception"
    reason = _rules().refused.get(f"{one.opcode[0]:02x}")
    if reason is not None:
        return reason
    if one.opcode[0] == _MOVE_TO_SEGMENT and _extension(one) == _SS:
        return "kprobes do not single-step an instruction that holds exceptions off"
    if one.opcode == b"\x0f\x01" and _mode(one) == _IN_REGISTER and _extension(one) == 0:
        return "kprobes do not know the instructions of virtual machines"
    if one.opcode[0] == _GROUP_5 and _extension(one) in (_FAR_CALL, _FAR_JUMP):
        return "kprobes do not emulate a far call or jump"
    if one.opcode[0] == _GROUP_5 and _extension(one) in (_INDIRECT_CALL, _INDIRECT_JUMP) and _mode(one) != _IN_REGISTER:
        return "kprobes do not emulate a call or a jump through memory"
    return "no room for an int3 behind its copy" if one.size >= _LONGEST else None


def is_emulated(one: Instruction) -> bool:
    """Whether kprobes do what the instruction does themselves (prepare_emulation())."""
    if one.opcode[0] == _ESCAPE:
        return one.opcode[1] in _rules().emulated_two_byte
    if one.opcode[0] == _GROUP_5:
        return _extension(one) in (_INDIRECT_CALL, _INDIRECT_JUMP)
    return one.opcode[0] in _rules().emulated


def can_boost(one: Instruction, *, since_6_9: bool) -> bool:
    """Whether a copy with a jump behind it does the same (can_boost()), where the instruction cannot fault."""
    groups = _rules().boosted_groups.get(f"{one.opcode[0]:02x}") if since_6_9 else None
    if one.opcode[0] == _ESCAPE:
        return one.opcode[1] in _rules().boosted_two_byte
    if _CS_OVERRIDE in one.prefixes or _ADDRESS_SIZE in one.prefixes:
        return False
    if groups is not None:
        return _extension(one) in groups
    if one.opcode[0] == _GROUP_5:
        return _extension(one) == _INDIRECT_JUMP
    return one.opcode[0] not in _rules().not_boosted


def has_room_for_a_jump(one: Instruction) -> bool:
    """Whether a jump fits behind the instruction's copy, as the booster needs it (prepare_singlestep())."""
    return one.size + _JUMP <= _LONGEST


def can_move(one: Instruction) -> bool:
    """Whether the lab's modules may run it at another address (instruction_can_move())."""
    if branch_target(one) is not None or ends_flow(one):
        return False
    if one.opcode[0] == _GROUP_5:
        return _extension(one) not in (_INDIRECT_CALL, _FAR_CALL)
    if one.opcode[0] == _ESCAPE:
        return one.opcode[1] not in _rules().immovable_two_byte
    return one.opcode[0] not in _rules().immovable


def branch_target(one: Instruction) -> int | None:
    """Where a call or a jump with a distance leads; None for any other instruction."""
    is_branch = one.opcode[0] == _CALL or is_jump(one)
    return one.operands[0] if is_branch and one.operands and isinstance(one.operands[0], int) else None


def is_call(one: Instruction) -> bool:
    """Whether it is a call with a distance."""
    return one.opcode[0] == _CALL


def is_jump(one: Instruction) -> bool:
    """Whether it is a jump with a distance, conditional or not."""
    if one.opcode[0] == _ESCAPE:
        return 0x80 <= one.opcode[1] <= 0x8F
    return 0x70 <= one.opcode[0] <= 0x7F or one.opcode[0] in (0xE0, 0xE1, 0xE2, 0xE3, 0xE9, 0xEB)


def is_indirect_jump(one: Instruction) -> bool:
    """Whether it jumps to where a register or memory says, or far."""
    return one.opcode[0] == 0xEA or (one.opcode[0] == _GROUP_5 and _extension(one) in (_INDIRECT_JUMP, _FAR_JUMP))


def is_return(one: Instruction) -> bool:
    """Whether it is a return, of any kind."""
    return one.opcode[0] in _RETURNS


def ends_flow(one: Instruction) -> bool:
    """Whether nothing behind it is run by itself (instruction_ends_flow())."""
    if one.opcode[0] == _ESCAPE:
        return one.opcode[1] in _UNDEFINED
    return one.opcode[0] in (0xCC, 0xE9, 0xEB) or is_return(one) or is_indirect_jump(one)


def is_repeated(one: Instruction) -> bool:
    """Whether it is a string instruction that repeats itself."""
    return bool(_REPEATS & set(one.prefixes)) and len(one.opcode) == 1 and one.opcode[0] in _STRING


def is_int3(one: Instruction) -> bool:
    """Whether it is a breakpoint, or padding."""
    return one.opcode[0] == 0xCC


def is_nop(one: Instruction) -> bool:
    """Whether it is a nop of one byte, or a long one."""
    return one.opcode in (b"\x90", b"\x0f\x1f")


def _extension(one: Instruction) -> int:
    return one.modrm >> 3 & 7


def _mode(one: Instruction) -> int:
    return one.modrm >> 6
