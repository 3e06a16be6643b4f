# SPDX-License-Identifier: GPL-2.0-only
"""Whose instruction is at an address: a function of the kernel's, one of a module's, a program's, or nobody's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.profile.counts import Code, Counts, Stack
from orchestrator.profile.operands import operands
from orchestrator.results.misses import InstructionMisses, Misses
from orchestrator.results.profile import Instruction, Place, SymbolProfile

_RETPOLINE = "__x86_indirect_thunk"
GENERATED = "generated code"
"""What was made while the guest ran, where the kernel does not list it."""
_HALF = 1 << 63
"""64-bit kernels are above it."""


@dataclass(frozen=True)
class Function:
    """A function: its address, its name, and its module's name (None for the kernel itself)."""

    address: int
    name: str
    module: str | None = None


@dataclass(frozen=True)
class CodeRange:
    """Addresses from ``start`` to ``end`` whose instructions belong to the last function before them."""

    start: int
    end: int


@dataclass(frozen=True)
class Owner:
    """Whose code it is. The address of a program, and of generated code, is 0; ``start`` is that of a module's text."""

    function: Function
    place: Place
    start: int = 0


@dataclass(frozen=True)
class Places:
    """The code of a guest: ``function_at`` finds the last function that begins at an address or before it.

    Below ``kernel_start`` code is of ``program``. What is in none of the ``ranges`` was made while the guest ran, and
    ``made_at`` says what it is.
    """

    function_at: Callable[[int], Function | None]
    ranges: Sequence[CodeRange]
    kernel_start: int
    program: str
    made_at: Callable[[int], str] = lambda _: GENERATED

    def owner(self, address: int) -> Owner:
        """Whose code is at an address."""
        if address < self.kernel_start:
            return Owner(Function(0, self.program), "user")
        covering = next((one for one in self.ranges if one.start <= address < one.end), None)
        function = None if covering is None else self.function_at(address)
        if covering is None or function is None or function.address < covering.start:
            return Owner(Function(0, self.made_at(address)), "generated")
        return Owner(function, "kernel") if function.module is None else Owner(function, "module", covering.start)

    def stacks(self, counts: Mapping[Stack, int]) -> tuple[tuple[str, int], ...]:
        """Folded stacks: names from the program on, with semicolons between, and the instructions of the last one."""
        found: dict[str, int] = defaultdict(int)
        for stack, count in counts.items():
            names = [self.program, *(self._title(address) for address in stack if address >= self.kernel_start)]
            # A retpoline is called and does not return: the function that it jumps to does.
            names = [*(name for name in names[:-1] if not name.startswith(_RETPOLINE)), names[-1]]
            # The block is in the function that was entered last, or in one that it jumped to.
            if names[-1:] == names[-2:-1]:
                names.pop()
            found[";".join(names)] += count
        return tuple(sorted((folded, count) for folded, count in found.items() if count))

    def names(self, codes: Iterable[Code]) -> dict[str, dict[int, str]]:
        """The functions that instructions jump or refer to, by module and address, as a profile has them."""
        behind = 1 << 8 * (8 if self.kernel_start >= _HALF else 4)
        found: dict[str, dict[int, str]] = defaultdict(dict)
        for address, code in codes:
            owner = self.owner(address)
            numbers = () if owner.place == "user" else operands(code, behind.bit_length() // 8)[1]
            for one in numbers:
                target = ((address if one.kind == "relative" else 0) + one.value) % behind
                name = self._place(target)
                if name is not None and one.kind == "relative":
                    found[owner.function.module or ""][(target - owner.start) % behind] = name
                elif name is not None:
                    found[""][target] = name
        return dict(found)

    def _place(self, address: int) -> str | None:
        """The function at an address and how far behind its beginning; None for what is no function's."""
        owner = self.owner(address)
        if owner.place not in ("kernel", "module"):
            return None
        behind = address - owner.function.address
        return self._title(address) + (f"+{behind:#x}" if behind else "")

    def _title(self, address: int) -> str:
        function = self.owner(address).function
        return function.name if function.module is None else f"{function.name} [{function.module}]"

    def symbols(
        self, counts: Mapping[Code, Counts], misses: Mapping[Code, Misses] | None = None
    ) -> tuple[SymbolProfile, ...]:
        """The instructions by symbol: the largest symbol first, its instructions in the order of their addresses."""
        found: dict[Owner, list[Instruction]] = defaultdict(list)
        for (address, code), one in sorted(counts.items()):
            owner = self.owner(address)
            found[owner].append(Instruction(address - owner.function.address, code, *one))
        missed: dict[Owner, list[InstructionMisses]] = defaultdict(list)
        for (address, code), one_missed in sorted((misses or {}).items()):
            owner = self.owner(address)
            missed[owner].append(InstructionMisses(address - owner.function.address, code, one_missed))
        made = [
            SymbolProfile(
                name=owner.function.name,
                place=owner.place,
                module=owner.function.module,
                address=owner.function.address - owner.start,
                instructions=tuple(instructions),
                misses=tuple(missed[owner]),
            )
            for owner, instructions in found.items()
        ]
        return tuple(sorted(made, key=lambda one: (-one.executed, one.title, one.address)))
