# SPDX-License-Identifier: GPL-2.0-only
"""Instructions of profiles side by side: differences, execution counts, and classes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from fractions import Fraction
from functools import lru_cache
from itertools import takewhile
from typing import Literal, NamedTuple, get_args

from pydantic import TypeAdapter

from orchestrator.arch import ARCHITECTURES, INT3
from orchestrator.artifacts.machine_code import decoded, disassembled
from orchestrator.catalog.data import did_you_mean, read
from orchestrator.errors import UsageError
from orchestrator.report.sheet import number as shown_number
from orchestrator.results.contract import ExecutedClasses, InstructionClass
from orchestrator.results.profile_difference import (
    FunctionDifference,
    InstructionDifference,
    ProfileDifference,
    SymbolPair,
    symbol_difference,
    symbol_pairs,
)
from orchestrator.results.stored_profile import ZERO, CellProfile, SymbolProfile, stem

# Capstone writes numbers below ten without 0x. None of them is an absolute address.
_NUMBER = re.compile(r"(?P<rip>rip (?=[+-] [0-9]))?(?P<sign>[+-] ?)?(?<!\w)(?P<number>0x[0-9a-f]+|(?<=rip . )[0-9])\b")
_PER_CPU = re.compile(r"[fg]s:\[0x[0-9a-f]+\]")
"""Without a register the number is the place of a per-CPU variable; with one it may be a field's offset."""


class Operand(NamedTuple):
    """A number, from ``start`` to ``end`` of an instruction's text.

    ``relative`` ones count from the instruction's address; ``per-cpu`` is a variable's place; ``plain`` ones may be
    anything.
    """

    start: int
    end: int
    value: int
    kind: Literal["relative", "per-cpu", "plain"]


@lru_cache(maxsize=65536)
def operands(code: str, word: int) -> tuple[str, tuple[Operand, ...]]:
    """An instruction's text as if at address 0, and the numbers in it. Cached, as a profile repeats most codes."""
    text = disassembled(bytes.fromhex(code), 0, word)
    if text.startswith(".byte"):
        return text, ()
    branch = re.fullmatch(r"(?:.* )?(?:call|j[a-z]+|loop[a-z]*|xbegin) (?P<target>0x[0-9a-f]+|[0-9])", text)
    if branch is not None:
        return text, (Operand(branch.start("target"), len(text), int(branch["target"], 0), "relative"),)
    per_cpu = _PER_CPU.search(text)
    numbers = []
    for number in _NUMBER.finditer(text):
        value = int(number["number"], 0) * (-1 if (number["sign"] or "").startswith("-") else 1)
        if number["rip"]:
            # Drop the sign too: a target after the code in one kernel may be before it in another.
            numbers.append(Operand(number.start(), number.end(), value + len(code) // 2, "relative"))
        else:
            is_per_cpu = per_cpu is not None and per_cpu.start() < number.start() < per_cpu.end()
            numbers.append(Operand(number.start(), number.end(), value, "per-cpu" if is_per_cpu else "plain"))
    return text, tuple(numbers)


# Instructions independent of addresses: addresses in them become the names of their targets.
#
# Two instructions with one ``key`` differ only in where their code and its targets are. A profile names functions only:
# all addresses of data are alike.

_KERNEL_BYTES = {"i386": 128 << 20, "x86_64": 512 << 20}
"""The maximum of text and data of a kernel's image: KERNEL_IMAGE_SIZE on x86_64, Documentation/x86/x86_64/mm.rst of
Linux 6.1."""
_BEHIND_MODULES = {"i386": 0xFF000000, "x86_64": 0xFFFFFFFFFF000000}
"""Modules are below; above are the fixed addresses, and small negative numbers."""
_PROGRAM_BYTES = 16 << 20

_HERE, _DATA = "here", "address"


class Relocated(NamedTuple):
    """An instruction: ``key`` for comparing, ``text`` for display, with targets inside the function as ``+0x45``."""

    key: str
    text: str


class CodeOfProfile:
    """The functions of a profile, and the names of their instructions' targets."""

    def __init__(self, profile: CellProfile) -> None:
        self._names = profile.names
        self._arch = profile.arch
        self._word = ARCHITECTURES[profile.arch].word
        starts = [symbol.address for symbol in profile.symbols if symbol.place == "kernel"]
        self._kernel_start = min(starts, default=1 << 8 * self._word) & -(16 << 20)

    def relocated(self, symbol: SymbolProfile) -> Sequence[Relocated]:
        addresses = self._addresses(symbol)
        return [
            self._instruction(symbol, instruction.offset, instruction.code, addresses)
            for instruction in symbol.instructions
        ]

    def _instruction(self, symbol: SymbolProfile, offset: int, code: str, addresses: range) -> Relocated:
        text, numbers = operands(code, self._word)
        key = shown = ""
        done = 0
        for number in numbers:
            between, written = text[done : number.start], text[number.start : number.end]
            relocated = self._operand(symbol, offset, number, addresses)
            key += between + (written if relocated is None else relocated.key)
            shown += between + (written if relocated is None else relocated.text or written)
            done = number.end
        return Relocated(key + text[done:], shown + text[done:])

    def _operand(self, symbol: SymbolProfile, offset: int, number: Operand, addresses: range) -> Relocated | None:
        """The replacement of a number; None if it is not an address. Without a text the number itself is shown."""
        behind = 1 << 8 * self._word
        if number.kind != "relative":
            name = self._names.get("", {}).get(number.value % behind)
            is_address = number.kind == "per-cpu" or number.value % behind in addresses
            return _named(symbol, name) if name is not None else Relocated(_DATA, "") if is_address else None
        target = (symbol.address + offset + number.value) % behind
        name = self._names.get(symbol.module or "", {}).get(target)
        if name is not None:
            return _named(symbol, name)
        # A module's address is unknown: so are addresses outside of it.
        return Relocated(_DATA, _DATA if symbol.place == "module" else f"{target:#x}")

    def _addresses(self, symbol: SymbolProfile) -> range:
        if symbol.place == "kernel":
            return range(self._kernel_start, self._kernel_start + _KERNEL_BYTES[self._arch])
        if symbol.place == "user":
            start = min((instruction.offset for instruction in symbol.instructions), default=0) & -(1 << 12)
            return range(start, start + _PROGRAM_BYTES)
        return range(self._kernel_start, _BEHIND_MODULES[self._arch])


def _named(symbol: SymbolProfile, name: str) -> Relocated:
    """A function or a place in one; places in other functions are alike, as code before them may have changed."""
    function, plus, behind = name.partition("+")
    if function == symbol.title:
        return Relocated(_HERE, f"+{behind or '0x0'}")
    return Relocated(stem(function) + plus, name)


_LONG = 1 << 24
"""Pairs of instructions above which frequent ones start no match: 4096 by 4096 of 20 kinds take 0.2 s."""


class _Executed(NamedTuple):
    code: Relocated
    offset: int
    executed: Fraction


class ComparedCode:
    """Two profiles whose code is compared independently of addresses."""

    def __init__(self, before: CellProfile, after: CellProfile) -> None:
        self._before, self._after = before, after
        self._code = CodeOfProfile(before), CodeOfProfile(after)

    def function(self, name: str) -> FunctionDifference:
        """Compare the functions of this name, with or without the module in brackets.

        Raises UsageError if neither profile has it, or the profiles are of two architectures.
        """
        if self._before.arch != self._after.arch:
            what = f"instructions of {self._before.arch} and of {self._after.arch} cannot be compared"
            raise UsageError(what, hint="compare them by symbol: leave out --symbol")
        pairs = symbol_pairs(self._before, self._after)
        wanted_pairs = [
            pair
            for pair in pairs
            if any(name in (profile.name, profile.title) for profile in (*pair.before, *pair.after))
        ]
        if not wanted_pairs:
            hint = did_you_mean(name, [profile.name for pair in pairs for profile in (*pair.before, *pair.after)])
            raise UsageError(f"calls of neither cell execute '{name}'", hint=hint)
        if len(wanted_pairs) > 1:
            titles = [pair.title for pair in wanted_pairs]
            raise UsageError(
                f"{len(wanted_pairs)} functions have the name '{name}'", detail=titles, hint="name one of these"
            )
        symbol = symbol_difference(wanted_pairs[0], self._before.calls, self._after.calls)
        both = list(_aligned(*self._executed(wanted_pairs[0])))
        differing = [difference for difference in both if difference.before != difference.after]
        return FunctionDifference(symbol, differing, len(both) - len(differing))

    def is_same(self, pair: SymbolPair) -> bool:
        first, second = self._executed(pair)
        return [(executed.code.key, executed.executed) for executed in first] == [
            (executed.code.key, executed.executed) for executed in second
        ]

    def _executed(self, pair: SymbolPair) -> tuple[Sequence[_Executed], Sequence[_Executed]]:
        before, after = self._code
        first = _instructions(pair.before, before, self._before.calls)
        return first, _instructions(pair.after, after, self._after.calls)


def with_code(difference: ProfileDifference) -> ProfileDifference:
    """The difference in which equal symbols have also executed the same instructions.

    Returned unchanged for two architectures, whose instructions are never the same.
    """
    before, after = difference.before, difference.after
    if before.arch != after.arch:
        return difference
    compared, differing = ComparedCode(before, after), {symbol.title for symbol in difference.symbols}
    equal = (pair for pair in symbol_pairs(before, after) if pair.title not in differing)
    other_code = sorted(pair.title for pair in equal if not compared.is_same(pair))
    return replace(difference, equal=difference.equal - len(other_code), other_code=other_code)


def _instructions(symbols: Sequence[SymbolProfile], code: CodeOfProfile, calls: int) -> Sequence[_Executed]:
    """The executed instructions of the functions of one name, in an order independent of addresses."""
    functions = [
        [
            _Executed(relocated, count.offset, Fraction(count.executed, calls))
            for count, relocated in zip(symbol.instructions, code.relocated(symbol), strict=True)
        ]
        for symbol in symbols
    ]
    functions.sort(key=lambda function: [(executed.code.key, executed.executed) for executed in function])
    return [executed for function in functions for executed in function]


def _aligned(before: Sequence[_Executed], after: Sequence[_Executed]) -> Iterator[InstructionDifference]:
    """Align both sequences by what they have in common in the same order."""
    # Strip the common start and end first: the search in between is quadratic.
    shortest = min(len(before), len(after))
    begin = next((at for at in range(shortest) if before[at].code.key != after[at].code.key), shortest)
    rest = shortest - begin
    end = next((at for at in range(rest) if before[-1 - at].code.key != after[-1 - at].code.key), rest)
    keys = [[executed.code.key for executed in side[begin : len(side) - end]] for side in (before, after)]
    is_long = len(keys[0]) * len(keys[1]) > _LONG
    between = SequenceMatcher(None, keys[0], keys[1], autojunk=is_long).get_matching_blocks()
    blocks = [
        (0, 0, begin),
        *((begin + match.a, begin + match.b, match.size) for match in between),
        (len(before) - end, len(after) - end, end),
    ]
    at_first = at_second = 0
    for first, second, size in blocks:
        yield from (_difference(executed, None) for executed in before[at_first:first])
        yield from (_difference(None, executed) for executed in after[at_second:second])
        at_first, at_second = first + size, second + size
        yield from map(_difference, before[first:at_first], after[second:at_second])


def _difference(before: _Executed | None, after: _Executed | None) -> InstructionDifference:
    executed = after or before
    assert executed is not None
    return InstructionDifference(
        executed.code.text,
        None if before is None else before.executed,
        None if after is None else after.executed,
        None if before is None else before.offset,
        None if after is None else after.offset,
    )


def annotated(profiles: Sequence[CellProfile], function: str) -> str:
    """Executed instructions of the functions of one name, below the id of each cell whose calls execute one.

    Raises UsageError if no cell's calls do.
    """
    texts = []
    for profile in profiles:
        symbol_profiles = [symbol for symbol in profile.symbols if function in (symbol.name, symbol.title)]
        lines = [line for symbol in symbol_profiles for line in (symbol.placed_title, *_lines(profile, symbol), "")]
        texts += ["\n".join((profile.cell, *lines))] if lines else []
    if not texts:
        raise not_executed(profiles, function)
    return "\n".join(texts)


def not_executed(profiles: Sequence[CellProfile], function: str) -> UsageError:
    """The error for a function that no cell's calls execute."""
    hint = did_you_mean(function, dict.fromkeys(symbol.name for profile in profiles for symbol in profile.symbols))
    who = f"cell {profiles[0].cell} do not" if len(profiles) == 1 else f"none of the {len(profiles)} cells"
    return UsageError(f"calls of {who} execute '{function}'", hint=hint)


def _lines(profile: CellProfile, symbol: SymbolProfile) -> Iterator[str]:
    rows: Sequence[tuple[str, str, str, str]] = [
        (
            shown_number(float(Fraction(instruction_count.executed, profile.calls))),
            f"+{instruction_count.offset:#x}",
            instruction_count.code,
            relocated.text,
        )
        for instruction_count, relocated in zip(
            symbol.instructions, CodeOfProfile(profile).relocated(symbol), strict=True
        )
    ]
    counts, offsets, codes = (max((len(row[column]) for row in rows), default=0) for column in range(3))
    for count, offset, code, text in rows:
        yield f"{count:>{counts}}  {offset:<{offsets}}  {code:<{codes}}  {text}"


@lru_cache(maxsize=1)
def instruction_classes() -> Mapping[str, frozenset[str]]:
    """The names of instructions, in Intel's syntax, by class, in the order in which classes are printed."""
    return TypeAdapter(dict[str, frozenset[str]]).validate_python(read("instruction_classes.yaml"))


SEGMENT_LOADS = "segment loads"
LOCKED = "locked"
LOADS, STORES, TAKEN = "loads", "stores", "taken branches"

_FAR_LOADS = frozenset({"lds", "les", "lfs", "lgs", "lss"})
_LOCK = 0xF0
_PREFIXES = frozenset({0x26, 0x2E, 0x36, 0x3E, 0x64, 0x65, 0x66, 0x67, _LOCK, 0xF2, 0xF3})
_BRANCHES = frozenset({"call", "ret", "loop", "loope", "loopne", "lcall", "ljmp", "retf"})


def per_call(profile: CellProfile) -> Mapping[str, Fraction]:
    """How many instructions of each class a call executes; loads and stores count accesses.

    Loads, stores and taken branches are included if the guest has counted them. An instruction may be in several
    classes. What an exception pushes is not counted as a store: QEMU does not show it to a plugin.
    """
    names = [*instruction_classes(), SEGMENT_LOADS, LOCKED]
    if profile.has_details:
        names += [LOADS, STORES, TAKEN]
    sums: Counter[str] = Counter()
    word = ARCHITECTURES[profile.arch].word
    for instruction in profile.instructions:
        classes, is_branch = _classes(instruction.code, word)
        sums.update(dict.fromkeys(classes, instruction.executed))
        sums.update(
            {LOADS: instruction.loads, STORES: instruction.stores, TAKEN: instruction.taken if is_branch else 0}
        )
    return {name: Fraction(sums[name], profile.calls) for name in names}


def executed_classes(profile: CellProfile) -> ExecutedClasses:
    """The classes that modelled time is computed from, as a guest counts them that counts only these."""
    classes = per_call(profile)
    int3 = sum(instruction.executed for instruction in profile.instructions if instruction.code == f"{INT3:02x}")
    traps: dict[InstructionClass, Fraction] = {
        "int3": Fraction(int3, profile.calls),
        "other traps": classes["traps"] - Fraction(int3, profile.calls),
    }
    names: tuple[InstructionClass, ...] = get_args(InstructionClass)
    counts = {name: int(traps.get(name, classes.get(name, ZERO)) * profile.calls) for name in names}
    return ExecutedClasses(calls=profile.calls, instructions=profile.executed, classes=counts)


@lru_cache(maxsize=65536)
def _classes(code: str, word: int) -> tuple[frozenset[str], bool]:
    content = bytes.fromhex(code)
    # Capstone decodes neither endbr on i386 nor a lone prefix; such code belongs to no class.
    instruction = next(decoded(content, 0, word), None)
    if instruction is None:
        return frozenset(), False
    first = instruction.operands[0] if instruction.operands else None
    return frozenset(
        _classes_of(content, instruction.name, first, instruction.operands)
    ), instruction.name in _BRANCHES or instruction.name[0] == "j"


def _classes_of(content: bytes, name: str, first: object, operands: tuple[object, ...]) -> Iterator[str]:
    yield from (instruction_class for instruction_class, names in instruction_classes().items() if name in names)
    if name == "mov" and isinstance(first, str) and first[:2] in ("cr", "dr"):
        yield "serialising"
    if (name in ("mov", "pop") and first in {"cs", "ds", "es", "fs", "gs", "ss"}) or name in _FAR_LOADS:
        yield SEGMENT_LOADS
    touches_memory = any(not isinstance(operand, str | int) for operand in operands)
    prefixes = takewhile(lambda byte: byte in _PREFIXES, content)
    if _LOCK in prefixes or (name == "xchg" and touches_memory):
        yield LOCKED
