# SPDX-License-Identifier: GPL-2.0-only
"""A function of a kernel's image: its instructions, and what the kernel itself has to do with each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.artifacts.function_entry import FTRACE_NOPS, TRACER_BYTES, entry_offset
from orchestrator.artifacts.instructions import Instruction, decoded
from orchestrator.artifacts.kernel_code import RETURNS, KernelCode
from orchestrator.artifacts.text_tables import bug_places, faulting_places, static_branches
from orchestrator.probes.kprobe_code import branch_target, is_call, is_indirect_jump, is_jump
from orchestrator.probes.static_point import is_padding

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
