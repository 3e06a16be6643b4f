# SPDX-License-Identifier: GPL-2.0-only
"""The owner of an address: a function of the kernel or a module, a program, or generated code."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.arch import ARCHITECTURES, Arch
from orchestrator.artifacts.operands import operands
from orchestrator.errors import EvidenceError
from orchestrator.probes.module_functions import ModuleCode
from orchestrator.probes.symbols import ModuleMemory, Symbols
from orchestrator.profile.counted.counts import Code, Counts, Stack
from orchestrator.profile.counted.generated_code import BEHIND_NAMES, GENERATED, MadeCode
from orchestrator.profile.stored.cell_profile import (
    FoldedStack,
    InstructionCount,
    InstructionMisses,
    Misses,
    Place,
    SymbolProfile,
    known_sum,
)

_ENDS = re.compile(r"(bnd |notrack )?(call|j|l?ret|iret|int|loop|rdtsc|rep|sti\b|sys)")
"""Instructions behind which QEMU always ends a block of code: branches, and with a counting clock also rdtsc."""
THUNK = "__x86_indirect_thunk"
"""Retpolines: called, and left by a jump to the function."""
_HALF = 1 << 63
"""64-bit kernels are above it."""


class Function(NamedTuple):
    """A function: its address, its name, and its module's name (None for the kernel itself)."""

    address: int
    name: str
    module: str | None = None


class Owner(NamedTuple):
    """The owner of code. A program and most generated code have address 0; ``start`` is that of a module's text."""

    function: Function
    place: Place
    start: int = 0


@dataclass(frozen=True)
class Places:
    """The code of a guest: ``function_at`` finds the last function that starts at an address or before it.

    Code below ``kernel_start`` belongs to ``program``. Code outside of all ``ranges`` was generated while the guest
    ran, and ``made_at`` names it.
    """

    function_at: Callable[[int], Function | None]
    ranges: Sequence[range]
    kernel_start: int
    program: str
    made_at: Callable[[int], MadeCode] = lambda _: MadeCode(GENERATED)

    @property
    def arch(self) -> Arch:
        return "x86_64" if self.kernel_start >= _HALF else "i386"

    @property
    def _word(self) -> int:
        return ARCHITECTURES[self.arch].word

    def owner(self, address: int) -> Owner:
        known = self._not_made(address)
        if known is not None:
            return known
        name, start = self.made_at(address)
        return Owner(Function(start, name), "generated")

    def is_made(self, address: int) -> bool:
        """Whether code at an address was generated while the guest ran."""
        return self._not_made(address) is None

    def _not_made(self, address: int) -> Owner | None:
        if address < self.kernel_start:
            return Owner(Function(0, self.program), "user")
        covering = next((span for span in self.ranges if address in span), None)
        function = None if covering is None else self.function_at(address)
        if covering is None or function is None or function.address < covering.start:
            return None
        return Owner(function, "kernel") if function.module is None else Owner(function, "module", covering.start)

    def stacks(
        self, counts: Mapping[Stack, int], executed: Mapping[Code, Counts] | None = None
    ) -> tuple[FoldedStack, ...]:
        """Folded stacks. With ``executed``, checks entry counts against instruction counts."""
        by_names: dict[str, dict[Stack, int]] = defaultdict(dict)
        for stack, count in counts.items():
            names = [self.program, *(self._title(address) for address in stack if address >= self.kernel_start)]
            # A retpoline is called but does not return: the function that it jumps to does.
            names = [*(name for name in names[:-1] if not name.startswith(THUNK)), names[-1]]
            # The block is in the last function entered, or in one that it jumped to.
            if names[-1:] == names[-2:-1]:
                names.pop()
            by_names[";".join(names)][stack] = count
        lengths = self._lengths(counts, executed or {})
        sums = {names: sum(blocks.values()) for names, blocks in by_names.items()}
        return tuple(
            FoldedStack(names, sums[names], self._entered(by_names[names], lengths))
            for names in sorted(sums)
            if sums[names]
        )

    def _entered(self, blocks: Mapping[Stack, int], lengths: Mapping[int, int]) -> int | None:
        """How often the function was entered that has these blocks: where it was called, or at its first address.

        One that is jumped into elsewhere is entered as often as its only block is executed.
        """
        entries = [
            (block, count)
            for (*frames, block), count in blocks.items()
            if len(blocks) == 1 or frames[-1:] == [block] or self.owner(block).function.address == block
        ]
        return known_sum(count // lengths[block] if block in lengths else None for block, count in entries)

    def _lengths(self, stacks: Mapping[Stack, int], executed: Mapping[Code, Counts]) -> Mapping[int, int]:
        """The number of instructions of the kernel's blocks, where it is proved, by address.

        No block is longer than up to the next branch. So if all blocks at an address have the instructions of as many
        such blocks as its executions, each execution began one. A block that its own function jumps to is left out: it
        is executed more often than the function is entered.
        """
        sums, codes = Counter[int](), defaultdict[int, list[Code]](list)
        for stack, count in stacks.items():
            sums[stack[-1]] += count
        begins = {begin for begin in sums if begin >= self.kernel_start}
        for code, counts in executed.items() if begins else ():
            codes[code.address].append(code)
            text, numbers = operands(code.code, self._word)
            leads = [number.value for number in numbers if number.kind == "relative"] or (
                [0] if text.startswith("rep") else []
            )
            back = begins.intersection((code.address + lead) % (1 << 8 * self._word) for lead in leads)
            if counts.taken and "call" not in text:
                begins -= {begin for begin in back if self.owner(begin) == self.owner(code.address)}
        lengths: dict[int, int] = {}
        for begin in begins:
            length, at, is_end = 0, begin, False
            while not is_end and len(codes[at]) == 1:
                is_end = _ENDS.match(operands(codes[at][0].code, self._word)[0]) is not None
                at += len(codes[at][0].code) // 2
                length += 1
            if is_end and sums[begin] == executed[codes[begin][0]].executed * length:
                lengths[begin] = length
        return lengths

    def names(self, codes: Iterable[Code]) -> dict[str, dict[int, str]]:
        """Jump and reference targets of instructions, by module and address, as a profile stores them."""
        behind = 1 << 8 * self._word
        names: dict[str, dict[int, str]] = defaultdict(dict)
        for address, code in codes:
            owner = self.owner(address)
            numbers = () if owner.place == "user" else operands(code, self._word)[1]
            for number in numbers:
                target = ((address if number.kind == "relative" else 0) + number.value) % behind
                name = self._place(target)
                if name is not None and number.kind == "relative":
                    names[owner.function.module or ""][(target - owner.start) % behind] = name
                elif name is not None:
                    names[""][target] = name
        return dict(names)

    def _place(self, address: int) -> str | None:
        # Not owner(): most addresses that instructions name are data, and to name generated code takes the guest long.
        owner = self._not_made(address)
        if owner is None or owner.place == "user":
            return None
        behind = address - owner.function.address
        return titled(owner.function) + (f"+{behind:#x}" if behind else "")

    def _title(self, address: int) -> str:
        return titled(self.owner(address).function)

    def symbols(
        self, counts: Mapping[Code, Counts], misses: Mapping[Code, Misses] | None = None
    ) -> tuple[SymbolProfile, ...]:
        """Instructions by symbol: the largest symbol first, its instructions in order of address."""
        instruction_counts: dict[Owner, list[InstructionCount]] = defaultdict(list)
        missed: dict[Owner, list[InstructionMisses]] = defaultdict(list)
        for (address, code), executed in sorted(counts.items()):
            owner = self.owner(address)
            offset = address - owner.function.address
            instruction_counts[owner].append(InstructionCount(offset, code, *executed))
            if misses and Code(address, code) in misses:
                missed[owner].append(InstructionMisses(offset, code, misses[Code(address, code)]))
        made = [
            SymbolProfile(
                name=owner.function.name,
                place=owner.place,
                module=owner.function.module,
                address=owner.function.address - owner.start,
                instructions=tuple(instructions),
                misses=tuple(missed[owner]),
            )
            for owner, instructions in instruction_counts.items()
        ]
        return tuple(sorted(made, key=lambda profile: (-profile.executed, profile.title, profile.address)))


def titled(function: Function) -> str:
    """Its name, with its module's in brackets."""
    return function.name if function.module is None else f"{function.name} [{function.module}]"


_SPLITS = 0xF0000000
"""Where a 32-bit kernel may start (CONFIG_VMSPLIT_*): at a multiple of 256 MiB, its text 16 MiB further."""


class UnlistedModule(NamedTuple):
    """A module that the kernel's list of symbols lacks: the start of its memory, and its code."""

    name: str
    start: int
    code: ModuleCode


def places_of(symbols: Symbols, modules: Iterable[ModuleMemory], module: UnlistedModule | None, program: str) -> Places:
    """The functions of ``symbols`` and of ``module``, one of the ``modules``.

    Raises EvidenceError if the kernel does not list its text.
    """
    start, end = symbols.anywhere("_stext"), symbols.anywhere("_etext")
    if start is None or end is None:
        raise EvidenceError("the guest's kernel does not list where its text is (_stext, _etext)")
    known = [] if module is None else sorted((address, name) for name, address in module.code.functions.items())
    ranges = [range(start, end), *(range(memory.start, memory.end) for memory in modules)]
    if module is not None:
        ranges = [span for span in ranges if span.start != module.start] + [range(module.start, module.code.end)]

    def function_at(address: int) -> Function | None:
        if module is not None and module.start <= address < module.code.end:
            at = bisect_right(known, (address, BEHIND_NAMES)) - 1
            return Function(*known[at], module.name) if at >= 0 else None
        listed = symbols.function_at(address)
        return None if listed is None else Function(*listed)

    return Places(function_at=function_at, ranges=ranges, kernel_start=kernel_start(start), program=program)


def kernel_start(text: int) -> int:
    """The lowest address of a kernel with this text address: below it are programs."""
    return _HALF if text >= _HALF else text & _SPLITS
