# SPDX-License-Identifier: GPL-2.0-only
"""Stored profiles of cells: instructions by symbol, and cache misses.

Each cell has one file, JSON compressed with gzip, in the run's folder ``profiles``. Its record has the file's digest
and the figures that prove the profile.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, InstanceOf, PlainSerializer, StringConstraints, model_validator

from orchestrator.arch import Arch
from orchestrator.catalog.cpus import CacheName
from orchestrator.errors import UsageError
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellId, Count, Instructions, Phrase, Record


class Misses(NamedTuple):
    """Cache misses: of fetches, loads and stores in level 1, of all in level 2, and in the TLBs."""

    l1i: Count = 0
    l1d_loads: Count = 0
    l1d_stores: Count = 0
    l2: Count = 0
    itlb: Count = 0
    dtlb: Count = 0

    def of(self, cache: CacheName) -> int:
        return self.l1d_loads + self.l1d_stores if cache == "l1d" else int(getattr(self, cache))


NO_MISSES = Misses()


def sum_of(all_misses: Iterable[Misses]) -> Misses:
    """The sums of misses."""
    return Misses(*(sum(kind) for kind in zip(NO_MISSES, *all_misses, strict=True)))


class InstructionMisses(NamedTuple):
    """The misses of an instruction, ``offset`` bytes after its symbol, in all calls."""

    offset: Annotated[int, Field(ge=0, lt=2**64)]
    code: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){1,15}$")]
    misses: Misses


class CacheProfile(Record):
    """A modelled cache: its size in bytes, lines per set, bytes per line; a TLB's lines are pages.

    ``accesses`` and ``misses`` are of all calls; ``repeated`` are the misses of a second pass of the same calls.
    """

    name: CacheName
    size: Annotated[int, Field(ge=1)]
    ways: Annotated[int, Field(ge=1)]
    line: Annotated[int, Field(ge=1)]
    accesses: Count
    misses: Count
    repeated: Count

    @property
    def hits(self) -> int:
        return self.accesses - self.misses

    @model_validator(mode="after")
    def _misses_are_accesses(self) -> Self:
        if self.misses > self.accesses:
            raise ValueError(f"{self.name} missed {self.misses} of {self.accesses} accesses")
        return self


Place = Literal["kernel", "module", "user", "generated"]
Offset = Annotated[int, Field(ge=0, lt=2**64)]
Code = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){0,15}$")]
FunctionName = Annotated[str, StringConstraints(pattern=r"^[ -~]+$", max_length=511)]
"""KSYM_NAME_LEN of include/linux/kallsyms.h is 512 since Linux 6.1."""
FunctionPlace = Annotated[str, StringConstraints(pattern=r"^[ -~]+$", max_length=800)]
Folded = Annotated[str, StringConstraints(pattern=r"^[ -~]+$", max_length=1 << 17)]
Unit = Literal["call", "run", "round", "probe"]

_PREFIX = "26|2e|36|3e|64|65|66|67"
_REPEATED = re.compile(rf"(?:{_PREFIX})*f[23](?:{_PREFIX}|f[23])*(?:4[0-9a-f])?(?:a[4-7a-f]|6[c-f])")
"""A string instruction with a repeat prefix, and an optional REX prefix before its opcode."""


class InstructionCount(NamedTuple):
    """An instruction ``offset`` bytes after its symbol, and its executions in all calls, less those of the clock.

    ``taken`` counts the executions that continued elsewhere than at the next instruction. ``loads`` and ``stores`` are
    0 if not counted, as is ``taken`` in profiles of earlier versions. Without ``code`` it is the sum of user space.
    """

    offset: Offset
    code: Code
    executed: Instructions
    loads: Instructions = 0
    stores: Instructions = 0
    taken: Instructions = 0

    @property
    def repetitions(self) -> int:
        """Repetitions of a string instruction (``rep stos``), which QEMU counts, unlike a CPU's counter."""
        return self.taken if _REPEATED.fullmatch(self.code) else 0


class FoldedStack(NamedTuple):
    """A call stack: names joined by semicolons, the program first, and the last one's instructions in all calls.

    ``entered`` counts the times that the last function was entered from the one before it; None if not proved.
    """

    names: Folded
    executed: Instructions
    entered: Instructions | None = None


class SymbolProfile(Record):
    """A function of the kernel or of ``module``, a program in user space, or code generated at run time.

    ``address`` is its start, relative to the module's text in a module. It is 0 for a program in user space, and for
    generated code without a beginning that the kernel lists: their offsets are addresses.
    """

    name: FunctionName
    place: Place
    module: Phrase | None = None
    address: Offset
    instructions: tuple[InstructionCount, ...]
    misses: tuple[InstructionMisses, ...] = ()
    """The instructions with misses, if caches were modelled."""

    @cached_property
    def executed(self) -> int:
        return sum(instruction.executed for instruction in self.instructions)

    @cached_property
    def repetitions(self) -> int:
        return sum(instruction.repetitions for instruction in self.instructions)

    @cached_property
    def missed(self) -> Misses:
        return sum_of(misses.misses for misses in self.misses)

    @property
    def title(self) -> str:
        """The name with its module: ``kprobe_func [lab_kprobe]``."""
        return self.name if self.module is None else f"{self.name} [{self.module}]"

    @property
    def placed_title(self) -> str:
        """The same with the offset in the module: ``kprobe_func [lab_kprobe+0x40]``."""
        return self.title if self.module is None else f"{self.name} [{self.module}+{self.address:#x}]"


class CodeLine(NamedTuple):
    """A source line of generated code, from ``address`` up to the next one's; without a file it ends a function.

    ``file`` is the path in the type information (BTF), ``text`` what the line began with when it was compiled. The
    compiler leaves some instructions without a line: 0.
    """

    address: Offset
    line: Annotated[int, Field(ge=0, lt=1 << 31)] = 0
    file: Annotated[str, Field(max_length=4096)] = ""
    text: Annotated[str, Field(max_length=200)] = ""


class CellProfile(Record):
    """The instructions of ``calls`` calls of a cell, the largest symbol first.

    ``has_details`` if loads, stores and taken branches were counted. ``unit`` is the unit of work that counts as a
    call, such as a run of a whole system.
    """

    cell: CellId
    arch: Arch
    calls: Annotated[int, Field(ge=1)]
    unit: Unit = "call"
    has_details: bool
    symbols: tuple[SymbolProfile, ...]
    stacks: tuple[FoldedStack, ...] = ()
    caches: tuple[CacheProfile, ...] = ()
    """The modelled caches."""
    names: dict[str, dict[Offset, FunctionPlace]] = Field(default={})
    """The functions that instructions jump or refer to, by address: ``get_kprobe``, ``get_kprobe+0x5``.

    Under a module's name those of its own text, by offset in it; under "" all others.
    """
    code_lines: tuple[CodeLine, ...] = ()
    """The source lines of a user's BPF programs, by address."""

    @property
    def executed(self) -> int:
        return sum(symbol.executed for symbol in self.symbols)

    @property
    def repetitions(self) -> int:
        return sum(symbol.repetitions for symbol in self.symbols)

    @property
    def generated(self) -> Mapping[int, int]:
        """How often the instructions of generated code were executed, by their addresses."""
        times: Counter[int] = Counter()
        for symbol in self.symbols:
            if symbol.place == "generated":
                times.update({symbol.address + each.offset: each.executed for each in symbol.instructions})
        return times

    @property
    def uneven(self) -> Sequence[str]:
        """The symbols that not all calls execute alike, the one with the most such instructions first."""
        apart: Counter[str] = Counter()
        for symbol in self.symbols:
            apart[symbol.title] += sum(min(n % self.calls, -n % self.calls) for _, _, n, *_ in symbol.instructions)
        return [title for title, instructions in apart.most_common() if instructions]

    @property
    def instructions(self) -> Iterable[InstructionCount]:
        return (instruction for symbol in self.symbols for instruction in symbol.instructions)

    @cached_property
    def missed(self) -> Misses:
        return sum_of(symbol.missed for symbol in self.symbols)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        caches = {profile.name: profile for profile in self.caches}
        for name, cache in caches.items():
            if cache.misses != self.missed.of(name):
                raise ValueError(f"{name} missed {cache.misses} times, and the symbols {self.missed.of(name)} times")
        if caches and caches["l2"].accesses != caches["l1i"].misses + caches["l1d"].misses:
            raise ValueError("level 2 has other accesses than level 1 has misses")
        if self.stacks and sum(stack.executed for stack in self.stacks) != self.executed:
            raise ValueError("the stacks and the symbols have different sums")
        if len({(symbol.name, symbol.module, symbol.address) for symbol in self.symbols}) != len(self.symbols):
            raise ValueError("two symbols have the same name and address")
        return self

    def known_stacks(self) -> Sequence[FoldedStack]:
        """The stacks. Raises UsageError for a profile without any."""
        if not self.stacks:
            hint = f"measure stacks: {PROGRAM} run CONFIG --profile stacks"
            raise UsageError(f"the profile of cell {self.cell} has no stacks", hint=hint)
        return self.stacks

    def per_call(self, count: int) -> Fraction:
        return Fraction(count, self.calls)


_SUFFIXES = re.compile(r"(\.(isra|constprop|part|cold|lto_priv|localalias|llvm)(\.[0-9]+)*)+(?= \[|\+|$)")


def stem(title: str) -> str:
    """A function's title without the compiler's suffixes, such as ``.isra.0``; a module or offset stays."""
    return _SUFFIXES.sub("", title)


def known_sum(counts: Iterable[int | None]) -> int | None:
    """The sum of counts; None without any, or if one is not known."""
    known = list(counts)
    return sum(count for count in known if count is not None) if known and None not in known else None


ZERO = Fraction(0)
PerCall = Annotated[InstanceOf[Fraction], PlainSerializer(float, return_type=float)]
"""An exact figure per call, printed as a number."""


def instructions_per_call(symbols: Sequence[SymbolProfile], calls: int) -> Fraction | None:
    """Instructions of the symbols in one call; None if there are none."""
    return Fraction(sum(symbol.executed for symbol in symbols), calls) if symbols else None
