# SPDX-License-Identifier: GPL-2.0-only
"""What may the text of a kernel be once it has booted? That of its image, patched at the places that the image lists.

Each place may have the code of its kind only (arch/x86/kernel/alternative.c, ftrace.c and static_call.c of Linux 6.1
and 6.12): an int3 or a jump into a module is none of them. Static branches are not among these places: the guest's own
table has them, see ``static_branches``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.artifacts.function_entry import FTRACE_NOPS
from orchestrator.artifacts.instructions import Instruction, Memory, decoded
from orchestrator.artifacts.kernel_code import LOCKS, RETPOLINES, RETURNS, SEALS, Alternative, KernelCode
from orchestrator.errors import EvidenceError
from orchestrator.probes.differing_bytes import differing

_RELEASE = re.compile(r"6\.(1|12)(?!\d)")
"""The kernels whose code these are: each release patches other code in."""

_BRANCH = 5
"""Bytes of a call or a jump with a distance of 32 bits."""
_CALL, _JUMP = 0xE8, 0xE9
_RETURN = bytes.fromhex("c3cccccccc")
_RET = 0xC3
_LOCK, _NO_LOCK = 0xF0, 0x3E
_ENDBR = (bytes.fromhex("f30f1efa"), bytes.fromhex("f30f1efb"))
_SEALED = (bytes.fromhex("660f1f00"), bytes.fromhex("0f1f40d6"))
"""An endbr that nothing jumps to: an older and a newer gen_endbr_poison()."""
_NOPS = {
    4: re.compile(rb"\x89\xf6|\x3e?\x8d(?:\x76\0|\x74\x26\0|\xb6\0{4}|\xb4\x26\0{4})|\x66?\x90"),
    8: re.compile(rb"\x66*\x2e?\x0f\x1f(?:\0|\x40\0|\x44\0\0|\x80\0{4}|\x84\0{5})|\x66*\x90"),
}
"""By the bytes of a word."""
_ZERO = (bytes.fromhex("66664831c0"), bytes.fromhex("2e2e2e31c0"))
"""In place of a call of __static_call_return0(): an older and a newer xor5rax."""
_INT3 = 0xCC
_THROUGH_MEMORY = bytes.fromhex("ff15")
"""A call of the function that a pointer in memory has."""
_LONGEST_SHIFT = 64
_BRANCHES = re.compile(rb"\x2e?([\xe8\xe9]|\x0f[\x80-\x8f]).{4}", re.DOTALL)
_TRAMPOLINE, _TRACEPOINT = "__SCT__", "__SCT__tp_func_"
_REGISTERS = ("ax", "cx", "dx", "bx", "sp", "bp", "si", "di", *(str(number) for number in range(8, 16)))
_THUNK = re.compile(r"__x86_indirect_(?:call_|jump_)?thunk_[er]?([a-z]{2}|\d+)")


@dataclass(frozen=True)
class BootedText:
    """The image's text as its boot has patched it: ``patched`` has the number of places by kind."""

    text: bytes
    patched: Mapping[str, int]


def is_known(release: str) -> bool:
    """Whether this release of the kernel (``uname -r``) patches in no other code than is known here."""
    return _RELEASE.match(release) is not None


def booted_text(code: KernelCode, start: int, live: bytes) -> BootedText:
    """The text that a booted kernel may have from ``start`` on, where it has ``live``.

    Every listed place is as in ``live`` where that is code of the place's kind, else as in the image; so is all the
    rest. Raises EvidenceError where the image has no such text.
    """
    image = code.read(start, len(live))
    if len(image) != len(live):
        raise EvidenceError(f"the kernel's image has no {len(live)} bytes of text at {start:#x}")
    patching = _Patching(code, start, image, live)
    patching.locks()
    patching.seals()
    patching.traced_functions()
    patching.returns()
    patching.retpolines()
    patching.paravirtual_calls()
    patching.alternatives()
    patching.runtime_constants()
    patching.static_calls()
    return BootedText(bytes(patching.text), dict(sorted(patching.patched.items())))


class _Patching:
    """The image's text, in which place after place becomes what it is in memory. Places are counted from ``start``."""

    def __init__(self, code: KernelCode, start: int, image: bytes, live: bytes) -> None:
        self._code, self._start, self._image, self._live = code, start, image, live
        self._nops = _NOPS[code.word]
        self.text = bytearray(image)
        self.patched: Counter[str] = Counter()

    def locks(self) -> None:
        """Prefixes that a kernel for several CPUs drops on one (alternatives_smp_unlock())."""
        for at in self._sites(LOCKS):
            if self._image[at] == _LOCK and self._live[at] == _NO_LOCK:
                self._accept("lock prefix", at, 1)

    def seals(self) -> None:
        """Landing pads that no indirect branch leads to (apply_ibt_endbr())."""
        for at in self._sites(SEALS):
            if self._image[at : at + 4] in _ENDBR and self._live[at : at + 4] in _SEALED:
                self._accept("endbr", at, 4)

    def traced_functions(self) -> None:
        """The function tracer's calls, each a nop (ftrace_init()): one that is a call serves a tracer."""
        tracer = self._code.function("__fentry__")
        for nop in FTRACE_NOPS if tracer is not None else ():
            for found in re.finditer(re.escape(nop), self._live):
                at = found.start()
                if self._image[at] == _CALL and self._target(self._image, at) == tracer:
                    self._accept("traced function", at, _BRANCH)

    def returns(self) -> None:
        """Jumps to the return thunk, of which a CPU without its mitigation needs none (apply_returns())."""
        for at in self._sites(RETURNS):
            live = self._live[at : at + _BRANCH]
            if self._image[at] == _JUMP and (live == _RETURN or self._is_other_return(at)):
                self._accept("return", at, _BRANCH)

    def retpolines(self) -> None:
        """Branches through a thunk, each by its register directly (patch_retpoline())."""
        known: dict[tuple[bytes, int, int], re.Pattern[bytes] | None] = {}
        for at in self._sites(RETPOLINES):
            branch = _branch(self._image, at)
            if branch is None:
                continue
            opcode, size = branch
            key = opcode, size, self._target(self._image, at, size)
            if key not in known:
                known[key] = self._direct(*key)
            direct = known[key]
            if direct is not None and direct.fullmatch(self._without_nops(self._live[at : at + size])):
                self._accept("retpoline", at, size)

    def paravirtual_calls(self) -> None:
        """Calls through a table of the hypervisor's functions: a direct call, or the instruction itself."""
        for address, size in self._code.paravirtual:
            at = address - self._start
            if self._is_inside(at, size) and self._differs(at, size) and self._is_native(at, size):
                self._accept("paravirtual call", at, size)

    def alternatives(self) -> None:
        """Code for some CPUs, in place of other code, and with better nops either way (apply_alternatives())."""
        for one in self._code.alternatives:
            at = one.address - self._start
            if not self._is_inside(at, one.size) or not self._differs(at, one.size):
                continue
            if self._is_alternative(at, one):
                self._accept("alternative", at, one.size)
            elif self._image.startswith(_THROUGH_MEMORY, at) and self._is_native(at, one.size):
                # Since Linux 6.8 (commit 60bc276b129e) the hypervisor's functions are called so: alt_replace_call().
                self._accept("paravirtual call", at, one.size)

    def runtime_constants(self) -> None:
        """Numbers that the kernel computes once and writes into its code, the same in all places of one name.

        runtime_const_init() of arch/x86/include/asm/runtime-const.h, since Linux 6.11 (commit e3c92e81711d).
        """
        for prefix, size in (("runtime_ptr_", self._code.word), ("runtime_shift_", 1)):
            for section in self._code.named_sections(prefix):
                places = [at for at in self._sites(section) if self._is_inside(at, size)]
                values = {self._live[at : at + size] for at in places}
                if len(values) == 1 and (size > 1 or min(values)[0] < _LONGEST_SHIFT):
                    for at in filter(lambda at: self._differs(at, size), places):
                        self._accept("runtime constant", at, size)

    def static_calls(self) -> None:
        """Calls whose target the kernel chooses: of the trampolines, and of the places that must agree with them."""
        for first, end in list(differing(self.text, self._live)):
            at = first
            while at < end:
                # One place may have several runs, and a run several places.
                if self.text[at] == self._live[at]:
                    at += 1
                    continue
                place = self._static_call_over(at)
                if place is None:
                    break
                self._accept("static call", *place)
                at = sum(place)

    def _sites(self, section: str) -> Iterator[int]:
        end = self._start + len(self._live)
        return (address - self._start for address in self._code.sites(section) if self._start <= address < end)

    def _is_inside(self, at: int, size: int) -> bool:
        return 0 <= at <= len(self._live) - size

    def _differs(self, at: int, size: int) -> bool:
        return self.text[at : at + size] != self._live[at : at + size]

    def _accept(self, kind: str, at: int, size: int) -> None:
        """Take over what is in memory."""
        self.text[at : at + size] = self._live[at : at + size]
        self.patched[kind] += 1

    def _target(self, text: bytes, at: int, size: int = _BRANCH) -> int:
        """The address that a branch of this size leads to."""
        distance = int.from_bytes(text[at + size - 4 : at + size], "little", signed=True)
        return (self._start + at + size + distance) % (1 << 8 * self._code.word)

    def _without_nops(self, code: bytes) -> bytes:
        """Code whose nops are all of one byte."""
        return self._nops.sub(lambda nop: b"\x90" * len(nop[0]), code)

    def _is_other_return(self, at: int) -> bool:
        if self._live[at] != _JUMP or not self._differs(at, _BRANCH):
            return False
        return any(name.endswith("return_thunk") for name in self._code.names_at(self._target(self._live, at)))

    def _direct(self, opcode: bytes, size: int, thunk: int) -> re.Pattern[bytes] | None:
        """The code that a branch of this size to a thunk may become."""
        found = next(filter(None, map(_THUNK.fullmatch, self._code.names_at(thunk))), None)
        if found is None or found[1] not in _REGISTERS:
            return None
        register = _REGISTERS.index(found[1])
        prefix = b"\x41" if register > 7 else b""
        call = bytes([0xFF, 0xD0 + register % 8])
        jump = bytes([0xFF, 0xE0 + register % 8])
        fence = rb"(?:\x0f\xae\xe8)?"
        if opcode[0] == _CALL:
            return re.compile(fence + re.escape(prefix + call) + rb"\x90*")
        # A conditional jump becomes one of the opposite condition, around the rest.
        around = b"" if opcode[0] == _JUMP else bytes([0x70 | (opcode[1] & 0xF) ^ 1, size - 2])
        return re.compile(re.escape(around) + fence + re.escape(prefix + jump) + rb"\xcc?\x90*")

    def _is_native(self, at: int, size: int) -> bool:
        live = self._live[at : at + size]
        if live[0] == _CALL and self._is_nothing(live[_BRANCH:]):
            return self._is_function(self._target(self._live, at))
        return self._is_nothing(live)

    def _is_nothing(self, code: bytes) -> bool:
        return not self._without_nops(code).strip(b"\x90")

    def _is_alternative(self, at: int, one: Alternative) -> bool:
        size = one.size
        code = self._live[at : at + size]
        live = self._without_nops(code)
        original = self._without_nops(bytes(self.text[at : at + size]))
        replacement = self._code.read(one.replacement, one.replacement_size)
        if live in (original, self._without_nops(replacement.ljust(size, b"\x90"))):
            return True
        moved = self._wherever(code, one.address)
        kept = bytes(self.text[at : at + size])
        return moved is not None and moved in (
            self._wherever(replacement, one.replacement),
            self._wherever(kept, one.address),
        )

    def _wherever(self, code: bytes, address: int) -> list[object] | None:
        """The instructions but for nops, the same at any address. None for what is no code.

        Since Linux 6.4 a jump may be shorter than it was, with int3s behind it that nothing executes, and a jump over
        such ones to the end is a long nop (optimize_nops() and apply_relocation()).
        """
        found: list[object] = []
        end = address
        for one in decoded(code, address, self._code.word):
            end = one.end
            content = code[one.address - address : end - address]
            is_unreachable = content[0] == _INT3 and found and _is_jump(found[-1])
            if not is_unreachable and not self._nops.fullmatch(content):
                found.append(_absolute(one) or content)
        while found and found[-1] == ("jmp", (address + len(code),)):
            found.pop()
        return found if end == address + len(code) else None

    def _static_call_over(self, differs: int) -> tuple[int, int] | None:
        """The place and the size of a static call that may be as it is, and has a byte that differs."""
        for at in range(max(0, differs - _BRANCH), differs + 1):
            if self._is_trampoline(at):
                if at + _BRANCH > differs and self._leads_to_a_function(at):
                    return at, _BRANCH
                continue
            branch = _branch(self._image, at)
            if branch is not None and at + branch[1] > differs and self._agrees(at, *branch):
                return at, branch[1]
        return None

    def _is_trampoline(self, at: int) -> bool:
        return any(name.startswith(_TRAMPOLINE) for name in self._code.names_at(self._start + at))

    def _leads_to_a_function(self, at: int) -> bool:
        """Whether a trampoline's branch is one that the kernel sets; a tracepoint's has changed for a probe only."""
        if any(name.startswith(_TRACEPOINT) for name in self._code.names_at(self._start + at)):
            return False
        live = self._live[at : at + _BRANCH]
        return live == _RETURN or (live[0] == _JUMP and self._is_function(self._target(self._live, at)))

    def _agrees(self, at: int, opcode: bytes, size: int) -> bool:
        """Whether a place that called a trampoline does what that does, without it."""
        trampoline = self._target(self._image, at, size) - self._start
        if not self._is_inside(trampoline, _BRANCH) or not self._is_trampoline(trampoline):
            return False
        live, chosen = self._live[at : at + size], self._live[trampoline : trampoline + _BRANCH]
        if chosen[0] == _RET:
            return live in FTRACE_NOPS if opcode[0] == _CALL else live == _RETURN
        if chosen[0] != _JUMP:
            return False
        target = self._target(self._live, trampoline)
        if opcode[0] == _CALL and live in _ZERO:
            return "__static_call_return0" in self._code.names_at(target)
        return live.startswith(opcode) and self._target(self._live, at, size) == target

    def _is_function(self, address: int) -> bool:
        return 0 <= address - self._start < len(self._live) and bool(self._code.names_at(address))


def _branch(code: bytes, at: int) -> tuple[bytes, int] | None:
    """The opcode of the branch there, without a prefix, and its size with it; None for another instruction."""
    found = _BRANCHES.match(code, at)
    return None if found is None else (found[1], len(found[0]))


def _is_jump(one: object) -> bool:
    return isinstance(one, tuple) and one[0] == "jmp"


def _absolute(one: Instruction) -> object:
    """A branch, or an access relative to the instruction, by the address that it is about; None for any other."""
    operands = tuple(
        one.end + operand.displacement if isinstance(operand, Memory) and operand.base in ("rip", "eip") else operand
        for operand in one.operands
    )
    is_branch = one.name == "call" or one.name.startswith("j")
    return (one.name, operands) if operands != one.operands or is_branch else None
