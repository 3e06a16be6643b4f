# SPDX-License-Identifier: GPL-2.0-only
"""Where a jump can be put, an optimised kprobe's or a djprobe's: over five bytes that nothing leads into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from orchestrator.artifacts.instructions import Instruction
from orchestrator.probes.function_text import FunctionText
from orchestrator.probes.kprobe_code import (
    branch_target,
    can_boost,
    can_move,
    ends_flow,
    is_call,
    is_int3,
    is_jump,
    is_nop,
    is_return,
    kprobe_refusal,
)
from orchestrator.probes.verdict import PATCHED, YES, Verdict, no

_JUMP = 5
_COLD = ".cold"
_TOO_SHORT = "a jump takes five bytes, and the function ends before"


class JumpPlaces:
    """A function, of which kprobes refuse all where there is a ``refusal``."""

    def __init__(self, text: FunctionText, refusal: str | None) -> None:
        self._text, self._refusal = text, refusal

    def optimised(self, one: Instruction) -> Verdict:
        """The verdict on a place that takes a kprobe: can_optimize() and copy_optimized_instructions()."""
        text = self._text
        if not text.has("CONFIG_OPTPROBES"):
            return no("this kernel was built without CONFIG_OPTPROBES")
        if text.end - one.address < _JUMP:
            return no(_TOO_SHORT)
        if self._obstacle is not None:
            return no(self._obstacle)
        # A jump right behind the five bytes counts as well: insn_jump_into_range().
        first, last = one.address + 1, one.address + _JUMP
        found = self._into(text.jumps, first, last)
        if found is not None:
            return no(found)
        covered = self._covered(one.address)
        refusal = next(filter(None, map(self._copy_refusal, covered)), None)
        if refusal is not None:
            return no(refusal)
        if any(map(text.is_return_thunk, covered[:-1])) or text.is_return_thunk(one):
            return no("the five bytes reach what is behind a return")
        # A return is boosted where it is the fifth byte, and a jump to a thunk is not.
        if any(text.is_patched(each) or text.is_return_thunk(each) for each in covered):
            return PATCHED
        possible = self._into(text.possible_jumps, first, last)
        return YES if possible is None else Verdict(None, f"{possible}, if the kernel switches it so")

    @cached_property
    def _obstacle(self) -> str | None:
        """What keeps all of the function from being optimised."""
        text = self._text
        faulting = set(text.faulting)
        for one in text.decoded:
            if one.address in faulting:
                return f"the instruction at {self._at(one.address)} may fault, and its fixup may lead anywhere"
            # One through a thunk stays indirect, whatever the boot makes of it.
            if text.is_indirect_jump(one) and (is_jump(one) or not text.is_patched(one)):
                return f"the indirect jump at {self._at(one.address)} may lead anywhere in the function"
        return None if text.is_whole else "some bytes of the function are no instructions"

    def _covered(self, address: int) -> Sequence[Instruction]:
        """The whole instructions that five bytes cover."""
        return [one for one in self._text.decoded if one.end > address and one.address < address + _JUMP]

    def _copy_refusal(self, one: Instruction) -> str | None:
        text = self._text
        if one.address == text.traced:
            return "the five bytes reach the function tracer's site"
        if one.address in text.branches:
            return f"the five bytes reach the static branch at {self._at(one.address)}"
        if text.is_static_call(one):
            return f"the five bytes reach the static call at {self._at(one.address)}"
        if text.is_patched(one) or text.is_return_thunk(one):
            return None
        can_boost_it = one.address not in text.faulting and can_boost(one, since_6_9=text.since_6_9)
        if not can_boost_it or kprobe_refusal(one, since_6_9=text.since_6_9) is not None:
            return f"the jump would cover {self._at(one.address)}, which kprobes do not boost"
        return None

    def elsewhere(self, one: Instruction) -> Verdict | None:
        """The verdict on a place where no djprobe ever is; None for the function's entry."""
        if one.address == self._text.entry:
            return None
        return no(f"a djprobe is at the function's entry, at {self._at(self._text.entry)}")

    def djprobe(self, one: Instruction) -> Verdict:
        """The verdict on a function's entry: djprobe_site_refusal() of the lab's module."""
        text = self._text
        if self._refusal is not None:
            return no(self._refusal)
        covered = self._covered(one.address)
        refusal = next(filter(None, map(self._move_refusal, covered)), None)
        if refusal is None and (not covered or covered[-1].end - one.address < _JUMP):
            refusal = _TOO_SHORT
        refusal = refusal or self._searched(one.address, covered[-1].end)
        if refusal is not None:
            return no(refusal)
        if any(map(text.is_patched, covered)):
            return PATCHED
        possible = self._into(text.possible_jumps, one.address + 1, covered[-1].end - 1)
        return YES if possible is None else Verdict(None, f"{possible}, if the kernel switches it so")

    def _move_refusal(self, one: Instruction) -> str | None:
        text = self._text
        if is_return(one) or text.is_return_thunk(one):
            return _TOO_SHORT
        if not can_move(one) and not text.is_patched(one):
            return f"the jump would cover {self._at(one.address)}, which does not do the same elsewhere"
        if one.address in text.branches or text.is_static_call(one):
            return f"the jump would cover {self._at(one.address)}, which the kernel itself switches"
        return None

    def _searched(self, entry: int, behind: int) -> str | None:
        """What leads, or may lead, into the bytes under the jump, in the function and in its cold part."""
        text = self._text
        padding = False
        for part in (text, *self._cold_parts()):
            for one in part.decoded:
                if one.address < entry and part is text:
                    continue
                if is_int3(one) and not padding:
                    return f"there is a breakpoint at {self._at(one.address)}"
                if one.address in part.faulting:
                    return f"the instruction at {self._at(one.address)} may fault, and its fixup may lead anywhere"
                if part.is_indirect_jump(one):
                    return f"the indirect jump at {self._at(one.address)} may lead anywhere in the function"
                target = None if one.address in part.branches or part.is_patched(one) else branch_target(one)
                if target is not None and entry < target < behind:
                    return f"the {'call' if is_call(one) else 'jump'} at {self._at(one.address)} leads under the jump"
                padding = ends_flow(one) or (padding and is_nop(one))
        return None

    def _cold_parts(self) -> Iterator[FunctionText]:
        """The function that the compiler has split off, which jumps back."""
        text = self._text
        name = f"{text.symbol}{_COLD}"
        start = text.code.function(name)
        if start is None:
            return
        end = text.code.following(start) or start
        if any(start <= target < end for _, target in text.jumps):
            yield FunctionText(text.code, text.config, name)

    def _into(self, jumps: Iterable[tuple[int, int]], first: int, last: int) -> str | None:
        for place, target in jumps:
            if first <= target <= last:
                return f"the jump at {self._at(place)} leads to {self._at(target)}"
        return None

    def _at(self, address: int) -> str:
        behind = address - self._text.start
        return f"+{behind:#x}" if 0 <= behind < self._text.end - self._text.start else f"{address:#x}"
