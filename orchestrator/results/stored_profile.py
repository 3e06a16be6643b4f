# SPDX-License-Identifier: GPL-2.0-only
"""A cell's profile as it is stored: instructions by symbol, misses, trees of calls, and differences.

One file for each cell, JSON compressed with gzip, in the run's folder ``profiles``. A cell's record has the file's name
and digest, and the figures that prove it.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, StringConstraints, ValidationError, model_validator

from orchestrator.arch import Arch
from orchestrator.catalog.cpus import CacheName
from orchestrator.errors import LabError, UsageError
from orchestrator.program import PROGRAM
from orchestrator.results.contract import CellId, CellRecord, Count, Instructions, Phrase, Record
from orchestrator.results.faults import storage_faults

# What a cell's calls miss in models of caches: its types, as a profile stores them.


class Misses(NamedTuple):
    """How often something was not in a cache: fetches, loads and stores in level 1, all of them in level 2, TLBs."""

    l1i: Count = 0
    l1d_loads: Count = 0
    l1d_stores: Count = 0
    l2: Count = 0
    itlb: Count = 0
    dtlb: Count = 0

    def of(self, cache: CacheName) -> int:
        counts: dict[CacheName, int] = {
            "l1i": self.l1i,
            "l1d": self.l1d_loads + self.l1d_stores,
            "l2": self.l2,
            "itlb": self.itlb,
            "dtlb": self.dtlb,
        }
        return counts[cache]


NO_MISSES = Misses()


def sum_of(all_misses: Iterable[Misses]) -> Misses:
    """All of them together."""
    return Misses(*(sum(kind) for kind in zip(NO_MISSES, *all_misses, strict=True)))


class InstructionMisses(NamedTuple):
    """What an instruction, ``offset`` bytes behind its symbol, missed in all calls together."""

    offset: Annotated[int, Field(ge=0, lt=2**64)]
    code: Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{2}){1,15}$")]
    misses: Misses


class CacheProfile(Record):
    """A cache that was modelled: bytes, lines of a set, bytes of a line; a TLB's lines are pages.

    ``accesses`` and ``misses`` are of all calls; ``repeated`` are the misses of as many calls again.
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


# A cell's profile as it is stored: each instruction that its calls executed, by symbol.

FOLDER = "profiles"
LARGEST_FILE = 16 << 20
"""Bytes of a profile's file; one of a system call has ten thousand."""
_LARGEST_TEXT = 256 << 20

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
"""A string instruction with a prefix that repeats it, and REX before its opcode."""


class Instruction(NamedTuple):
    """An instruction ``offset`` bytes behind its symbol, and how often it was executed in all calls together.

    ``loads`` and ``stores`` are 0 where they were not counted, as ``taken`` (executions that went on elsewhere than
    behind it) in profiles of earlier versions. What the clock itself executes is subtracted. Without ``code`` it is all
    of user space, counted together.
    """

    offset: Offset
    code: Code
    executed: Instructions
    loads: Instructions = 0
    stores: Instructions = 0
    taken: Instructions = 0

    @property
    def repetitions(self) -> int:
        """Executions of a string instruction (``rep stos``) that went on at itself.

        QEMU's clock counts each of them, and a CPU's counter the whole instruction as one.
        """
        return self.taken if _REPEATED.fullmatch(self.code) else 0


class SymbolProfile(Record):
    """A function of the kernel or of ``module``, a program in user space, or code that was made while the guest ran.

    ``address`` is where it begins, from the module's text on for a module's; 0 for a program and for generated code,
    whose offsets are addresses.
    """

    name: FunctionName
    place: Place
    module: Phrase | None = None
    address: Offset
    instructions: tuple[Instruction, ...]
    misses: tuple[InstructionMisses, ...] = ()
    """Of those instructions that missed in a cache, where caches were modelled."""

    @cached_property
    def executed(self) -> int:
        return sum(one.executed for one in self.instructions)

    @cached_property
    def repetitions(self) -> int:
        return sum(one.repetitions for one in self.instructions)

    @cached_property
    def missed(self) -> Misses:
        return sum_of(one.misses for one in self.misses)

    @property
    def title(self) -> str:
        """The name as it is printed: ``kprobe_func [lab_kprobe]``."""
        return self.name if self.module is None else f"{self.name} [{self.module}]"

    @property
    def placed_title(self) -> str:
        """The same with where it is in its module: ``kprobe_func [lab_kprobe+0x40]``."""
        return self.title if self.module is None else f"{self.name} [{self.module}+{self.address:#x}]"


class CellProfile(Record):
    """All that ``calls`` calls of a cell executed, the largest symbol first. ``has_details`` where all was counted.

    ``unit`` is what is counted as a call: of a whole system it is a run.
    """

    cell: CellId
    arch: Arch
    calls: Annotated[int, Field(ge=1)]
    unit: Unit = "call"
    has_details: bool
    symbols: tuple[SymbolProfile, ...]
    stacks: tuple[tuple[Folded, Instructions], ...] = ()
    """Folded: names with semicolons between, the program first, and the instructions of the last one in all calls."""
    caches: tuple[CacheProfile, ...] = ()
    """The caches that were modelled."""
    names: dict[str, dict[Offset, FunctionPlace]] = Field(default={})
    """The functions that instructions jump or refer to, by address: ``get_kprobe``, ``get_kprobe+0x5``.

    Of each module what its own instructions jump to, from its text on; under "" all others.
    """

    @property
    def executed(self) -> int:
        return sum(symbol.executed for symbol in self.symbols)

    @property
    def repetitions(self) -> int:
        return sum(symbol.repetitions for symbol in self.symbols)

    @property
    def instructions(self) -> Iterable[Instruction]:
        return (one for symbol in self.symbols for one in symbol.instructions)

    @cached_property
    def missed(self) -> Misses:
        return sum_of(symbol.missed for symbol in self.symbols)

    @model_validator(mode="after")
    def _symbols_miss_what_caches_do(self) -> Self:
        caches = {one.name: one for one in self.caches}
        for name, cache in caches.items():
            if cache.misses != self.missed.of(name):
                raise ValueError(f"{name} missed {cache.misses} times, and the symbols {self.missed.of(name)} times")
        if caches and caches["l2"].accesses != caches["l1i"].misses + caches["l1d"].misses:
            raise ValueError("level 2 has other accesses than level 1 has misses")
        return self

    @model_validator(mode="after")
    def _each_symbol_once(self) -> Self:
        if self.stacks and sum(count for _, count in self.stacks) != self.executed:
            raise ValueError("the stacks and the symbols have different sums")
        if len({(one.name, one.module, one.address) for one in self.symbols}) != len(self.symbols):
            raise ValueError("two symbols have the same name and address")
        return self


def file_name(cell: str) -> str:
    """The name of a cell's file; an id may have slashes in it, and nothing else special."""
    return f"{cell.replace('/', '.')}.json.gz"


def write_profile(profile: CellProfile, file: Path) -> str:
    """Write a profile, and return its digest. Raises HostError when the disk is full."""
    # Without the time of day, equal profiles are equal files.
    content = gzip.compress(profile.model_dump_json().encode(), mtime=0)
    with storage_faults(file):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


def load_profile(directory: Path, record: CellRecord) -> CellProfile:
    """The profile of a cell of the run in ``directory``.

    Raises UsageError where the cell has none, LabError where the file is not the one that the record names.
    """
    if record.profile is None:
        hint = f"measure with one: {PROGRAM} run CONFIG --profile symbols"
        raise UsageError(f"cell {record.id} has no profile", hint=hint)
    file = directory / FOLDER / file_name(record.id)
    if not file.exists():
        hint = "a run puts them there when the boot of their cells ends: wait for it, or go on with --resume"
        raise LabError(f"the profile of cell {record.id} is not there", where=str(file), hint=hint)
    with storage_faults(file), file.open("rb") as opened:
        content = opened.read(LARGEST_FILE + 1)
    if hashlib.sha256(content).hexdigest() != record.profile.sha256:
        raise LabError(f"this is not the profile of cell {record.id} that the run has recorded", where=str(file))
    try:
        text = zlib.decompressobj(wbits=31).decompress(content, _LARGEST_TEXT)
        return CellProfile.model_validate_json(text)
    except (zlib.error, ValidationError) as error:
        raise LabError("damaged, or written by another version of this program", where=str(file)) from error


# Which names of two kernels mean one function: a compiler adds ``.isra.0`` to a name in one build and not in another.
#
# gcc and clang name what they split off a function, or specialise, after it.

_SUFFIXES = re.compile(r"(\.(isra|constprop|part|cold|lto_priv|localalias|llvm)(\.[0-9]+)*)+(?= \[|\+|$)")


def stem(title: str) -> str:
    """A function's name without what a compiler has added; its module, or its offset, stays."""
    return _SUFFIXES.sub("", title)


def paired(before: Iterable[str], after: Iterable[str]) -> Sequence[tuple[str | None, str | None]]:
    """Names of two sides, those of one function together, and None for what a side lacks.

    Equal names belong together. What is left does where a function has one clone on each side.
    """
    first, second = dict.fromkeys(before), dict.fromkeys(after)
    found: list[tuple[str | None, str | None]] = [(name, name) for name in first if name in second]
    left: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, (names, others) in enumerate([(first, second), (second, first)]):
        for name in names:
            if name not in others:
                left[stem(name)][side].append(name)
    for ours, theirs in left.values():
        if len(ours) == len(theirs) == 1:
            found.append((ours[0], theirs[0]))
        else:
            found += [(name, None) for name in ours]
            found += [(None, name) for name in theirs]
    return found


# A profile's stacks as a tree of calls with their inclusive cost, and what differs between two such trees.

DEEPEST = 256
"""Names of a stack; the plugin follows 128 calls."""

ZERO = Fraction(0)


@dataclass(frozen=True)
class CallCost:
    """A function as it was called from another one: instructions per call, its own and all with what it called.

    What it called is in the order of its names.
    """

    name: str
    own: Fraction
    total: Fraction
    called: Sequence[CallCost]


@dataclass(frozen=True)
class CallChange:
    """The same call in two profiles; None where one lacks it. What it called is in the order of its names.

    ``moved`` is the sum of what it and all that it called changed by, whether more or less.
    """

    name: str
    before: CallCost | None
    after: CallCost | None
    called: Sequence[CallChange]
    moved: Fraction

    @property
    def totals(self) -> tuple[Fraction, Fraction]:
        """Instructions per call with what it called, before and after."""
        before, after = self.before, self.after
        return ZERO if before is None else before.total, ZERO if after is None else after.total

    @property
    def change(self) -> Fraction:
        return self.totals[1] - self.totals[0]

    @property
    def own_change(self) -> Fraction:
        return own_change(self.before, self.after)


@dataclass
class _Node:
    own: int = 0
    called: dict[str, _Node] = field(default_factory=dict)

    def cost(self, name: str, calls: int) -> CallCost:
        called = [one.cost(other, calls) for other, one in sorted(self.called.items())]
        own = Fraction(self.own, calls)
        return CallCost(name, own, sum((one.total for one in called), start=own), called)


def call_tree(profile: CellProfile) -> CallCost:
    """The tree of a profile with stacks; what is called first is the program, below a root named after the cell.

    Raises UsageError for a profile without stacks, LabError where one is too deep.
    """
    check_stacks(profile)
    root = _Node()
    for folded, count in profile.stacks:
        names = folded.split(";")
        if len(names) > DEEPEST:
            raise LabError(
                f"a stack of cell {profile.cell} has {len(names)} calls, more than the {DEEPEST} there can be"
            )
        node = root
        for name in names:
            node = node.called.setdefault(name, _Node())
        node.own += count
    return root.cost(profile.cell, profile.calls)


def check_stacks(profile: CellProfile) -> None:
    """Raise UsageError for a profile without stacks."""
    if not profile.stacks:
        hint = f"measure with them: {PROGRAM} run CONFIG --profile stacks"
        raise UsageError(f"the profile of cell {profile.cell} has no stacks", hint=hint)


def compared_trees(before: CallCost | None, after: CallCost | None) -> CallChange:
    """Two trees as one; calls of one name from one caller are the same call, clones of a compiler's too."""
    first = {} if before is None else {one.name: one for one in before.called}
    second = {} if after is None else {one.name: one for one in after.called}
    called = [
        compared_trees(None if one is None else first[one], None if other is None else second[other])
        for one, other in paired(first, second)
    ]
    moved = sum((one.moved for one in called), start=abs(own_change(before, after)))
    either = after or before
    name = "" if either is None else either.name
    return CallChange(name, before, after, sorted(called, key=lambda one: one.name), moved)


def own_change(before: CallCost | None, after: CallCost | None) -> Fraction:
    """What a call executes more in the second profile, without what it calls."""
    return (ZERO if after is None else after.own) - (ZERO if before is None else before.own)


# What differs between two cells' profiles: by symbol, and by instruction in one. Code that only moved is equal.


@dataclass(frozen=True)
class SymbolDifference:
    """A symbol's instructions per call in two profiles; None where it executed nothing."""

    title: str
    before: Fraction | None
    after: Fraction | None

    @property
    def change(self) -> Fraction:
        return (self.after or ZERO) - (self.before or ZERO)


@dataclass(frozen=True)
class InstructionDifference:
    """An instruction of a function, ``text`` with the names of what it jumps to, and its executions per call.

    None stands for the side that does not execute it. Offsets are bytes behind the function.
    """

    text: str
    before: Fraction | None
    after: Fraction | None
    before_offset: int | None
    after_offset: int | None

    @property
    def change(self) -> Fraction:
        return (self.after or ZERO) - (self.before or ZERO)


@dataclass(frozen=True)
class FunctionDifference:
    """A function compared by instruction: those that differ, in their order; ``equal`` is how many do not."""

    symbol: SymbolDifference
    instructions: Sequence[InstructionDifference]
    equal: int


@dataclass(frozen=True)
class ProfileDifference:
    """Two profiles compared: the symbols that differ, the largest change first; ``equal`` is how many do not.

    ``other_code`` has those that execute as many instructions, but not the same ones; they are not among the ``equal``.
    ``notes`` are sentences on what was compared.
    """

    before: CellProfile
    after: CellProfile
    symbols: Sequence[SymbolDifference]
    equal: int
    other_code: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def totals(self) -> tuple[Fraction, Fraction]:
        return Fraction(self.before.executed, self.before.calls), Fraction(self.after.executed, self.after.calls)


@dataclass(frozen=True)
class SymbolPair:
    """The symbols that are one function in two profiles; those of one name are taken together."""

    before: Sequence[SymbolProfile]
    after: Sequence[SymbolProfile]

    @property
    def title(self) -> str:
        """The name; both where a compiler has changed it: ``f -> f.isra.0``."""
        return " -> ".join(dict.fromkeys(side[0].title for side in (self.before, self.after) if side))


def symbol_pairs(before: CellProfile, after: CellProfile) -> Sequence[SymbolPair]:
    """The symbols of two profiles by name."""
    first, second = _by_title(before), _by_title(after)
    return [
        SymbolPair(() if one is None else first[one], () if other is None else second[other])
        for one, other in paired(first, second)
    ]


def difference(before: CellProfile, after: CellProfile) -> ProfileDifference:
    """Compare two profiles by the names of their symbols."""
    found = [symbol_difference(pair, before.calls, after.calls) for pair in symbol_pairs(before, after)]
    differing = [one for one in found if one.before != one.after]
    differing.sort(key=lambda one: (-abs(one.change), one.title))
    return ProfileDifference(before, after, differing, len(found) - len(differing))


def symbol_difference(pair: SymbolPair, calls_before: int, calls_after: int) -> SymbolDifference:
    """How much a symbol executed of two profiles with so many calls."""
    return SymbolDifference(pair.title, _per_call(pair.before, calls_before), _per_call(pair.after, calls_after))


def _by_title(profile: CellProfile) -> Mapping[str, list[SymbolProfile]]:
    found: dict[str, list[SymbolProfile]] = {}
    for symbol in profile.symbols:
        found.setdefault(symbol.title, []).append(symbol)
    return found


def _per_call(symbols: Sequence[SymbolProfile], calls: int) -> Fraction | None:
    return Fraction(sum(one.executed for one in symbols), calls) if symbols else None
