# SPDX-License-Identifier: GPL-2.0-only
"""What kprobes and djprobes can do with one instruction, by its opcode: step over it, emulate it, copy it.

The rules are those of arch/x86/kernel/kprobes/core.c since Linux 5.13 (commit 6256e668b7af), with what Linux 6.9
has changed ("Boost more instructions from grp2/3/4/5", "Prohibit kprobing on INT and UD"), and of the lab's
``kmods/lib/instruction.c``. What they make of a whole function is in ``placement``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated

from pydantic import BeforeValidator

from orchestrator.artifacts.kernel_code import RETURNS, KernelCode
from orchestrator.artifacts.kernel_tables import bug_places, faulting_places, static_branches
from orchestrator.artifacts.machine_code import FTRACE_NOPS, TRACER_BYTES, Instruction, decoded, entry_offset
from orchestrator.catalog.data import Fact, read
from orchestrator.probes.point import is_padding

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


# A function of a kernel's image: its instructions, and what the kernel itself has to do with each.

_STATIC_CALL = "__SCT__"
_THUNK = "__x86_indirect_"
"""Begins the names of what jumps through a register in the place of an indirect jump."""
_SHORT_NOPS = (bytes.fromhex("6690"), bytes.fromhex("89f6"))


@dataclass(frozen=True)
class FunctionText:
    """The only function of the name ``symbol`` in the kernel's image, with the kernel's configuration.

    Kprobes have the rules of Linux 6.1, or those ``since_6_9``.
    """

    code: KernelCode
    config: Mapping[str, str]
    symbol: str
    since_6_9: bool = False

    @cached_property
    def start(self) -> int:
        """Its address."""
        found = self.code.function(self.symbol)
        assert found is not None  # wrong_point_reason() has been asked
        return found

    @cached_property
    def end(self) -> int:
        """The address of the next symbol, which kprobes take for its end."""
        return self.code.following(self.start) or self.start

    @cached_property
    def decoded(self) -> Sequence[Instruction]:
        """All instructions up to the end, or to bytes that are none; the padding too."""
        return list(decoded(self.code.read(self.start, self.end - self.start), self.start, self.code.word))

    @cached_property
    def instructions(self) -> Sequence[Instruction]:
        """Those of the function itself: without the padding behind the last one."""
        behind = len(self.decoded)
        while behind and is_padding(self.decoded[behind - 1]):
            behind -= 1
        return self.decoded[:behind]

    @property
    def is_whole(self) -> bool:
        """Whether all its bytes are instructions."""
        return bool(self.decoded) and self.decoded[-1].end == self.end

    def bytes_of(self, one: Instruction) -> bytes:
        """An instruction's bytes in the image."""
        return self.code.read(one.address, one.size)

    def has(self, option: str) -> bool:
        """Whether the kernel was built with an option."""
        return self.config.get(option) == "y"

    @cached_property
    def entry(self) -> int:
        """The address of its own first instruction, behind an endbr and what the function tracer has there."""
        return self.start + (entry_offset(self.code, self.symbol) or 0)

    @cached_property
    def traced(self) -> int | None:
        """The address of the function tracer's site; None where it has none in the function."""
        behind = self.entry - self.start
        return self.entry - TRACER_BYTES if behind >= TRACER_BYTES and self.has("CONFIG_DYNAMIC_FTRACE") else None

    @property
    def endbr_end(self) -> int:
        """The address behind an endbr at its beginning, or the beginning."""
        return self.entry if self.traced is None else self.traced

    @cached_property
    def branches(self) -> Mapping[int, int]:
        """The static branches and where each leads: a nop or a jump, as the kernel switches it."""
        listed = static_branches(self.code, self.start, self.end)
        found = {one.address: listed[one.address] for one in self.decoded if one.address in listed}
        at = {one.address: one for one in self.decoded}
        return {place: target for place, target in found.items() if self._is_branch(at[place], target)}

    def _is_branch(self, one: Instruction, target: int) -> bool:
        return self.bytes_of(one) in (*FTRACE_NOPS, *_SHORT_NOPS) or branch_target(one) == target

    @cached_property
    def faulting(self) -> Sequence[int]:
        """The addresses that may fault and are fixed up."""
        return faulting_places(self.code, self.start, self.end)

    @cached_property
    def bugs(self) -> frozenset[int]:
        """The addresses that report a BUG() or a WARN()."""
        return bug_places(self.code, self.start, self.end)

    def is_static_call(self, one: Instruction) -> bool:
        """Whether it is a call, or a jump, whose target the kernel chooses, at this place (x86_64 alone)."""
        target = branch_target(one)
        names = () if target is None else self.code.names_at(target)
        return self.has("CONFIG_HAVE_STATIC_CALL_INLINE") and any(name.startswith(_STATIC_CALL) for name in names)

    def is_indirect_jump(self, one: Instruction) -> bool:
        """Whether it jumps to where a register or memory says, through a thunk too."""
        target = branch_target(one)
        names = () if target is None or is_call(one) else self.code.names_at(target)
        return is_indirect_jump(one) or any(name.startswith(_THUNK) for name in names)

    def is_return_thunk(self, one: Instruction) -> bool:
        """Whether it is a jump to the return thunk, which becomes a return on most CPUs."""
        return one.address in self._returns

    def is_patched(self, one: Instruction) -> bool:
        """Whether other code may be there once the kernel has booted; returns stay what they are."""
        return one.address not in self._returns and self.code.is_patched(one.address, one.end)

    @cached_property
    def _returns(self) -> frozenset[int]:
        return frozenset(one for one in self.code.sites(RETURNS) if self.start <= one < self.end)

    @cached_property
    def jumps(self) -> Sequence[tuple[int, int]]:
        """Where each jump with a distance is, and leads; those that are there whatever the boot patches."""
        found = ((one, branch_target(one)) for one in self.decoded if is_jump(one) and not self.is_patched(one))
        return [
            (one.address, target) for one, target in found if target is not None and one.address not in self.branches
        ]

    @cached_property
    def possible_jumps(self) -> Sequence[tuple[int, int]]:
        """The same of jumps that may be there: static branches, code that is replaced, and what replaces it."""
        found = list(self.branches.items())
        for one in self.decoded:
            target = branch_target(one)
            if target is not None and is_jump(one) and self.is_patched(one):
                found.append((one.address, target))
        for other in self.code.alternatives:
            if self.start <= other.address < self.end:
                code = self.code.read(other.replacement, other.replacement_size)
                for one in decoded(code, other.replacement, self.code.word):
                    target = branch_target(one)
                    if target is not None and is_jump(one):
                        found.append((other.address, target))
        return found
