# SPDX-License-Identifier: GPL-2.0-only
"""The way that hits take through a BPF program: how much of it they execute, and where they leave it early.

QEMU counts how often each instruction of the compiled program is executed. A program that is switched off by a
constant, filters each hit away, or does not find what another one would have left, has a cost like any other. That it
does nothing shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePath
from typing import NamedTuple

from orchestrator.artifacts.machine_code import Instruction, Memory, decoded
from orchestrator.artifacts.object_lines import ObjectLine
from orchestrator.catalog.data import read
from orchestrator.plain_text import cut
from orchestrator.profile.stored.cell_profile import CodeLine
from orchestrator.results.contract import LONGEST_PHRASE
from orchestrator.results.parameters import (
    BPF_CODE,
    BPF_EXECUTED,
    BPF_EXECUTED_LINES,
    BPF_LEAVES,
    BPF_LEAVES_AT,
    BPF_LINES,
)

_WORD = 8
_READ_ALONE = ("cmp", "test", "nop", "lea", "push")
"""Instructions whose first operand may be memory that they do not write."""
_OWN_STACK = ("rbp", "rsp")

SourceLine = tuple[str, int]


class LoadedCode(NamedTuple):
    """The machine ``code`` of a program at an ``address``; ``loaded`` are its lines, and ``source`` the object's."""

    code: bytes
    address: int
    loaded: Sequence[CodeLine]
    source: Sequence[ObjectLine]


@lru_cache(maxsize=1)
def _reading_functions() -> Sequence[str]:
    return [str(name) for name in read("reading_functions.yaml")["functions"]]


def is_reading(names: Collection[str]) -> bool:
    """Whether a function of these names changes nothing but what a program gives it."""
    return any(fnmatchcase(name, pattern) for name in names for pattern in _reading_functions())


class HitWay(NamedTuple):
    """How many machine instructions of a program hits execute, and how many of the source's lines.

    ``leaves`` is where each hit leaves without having done anything: ``opens.bpf.c:31``, or ``instruction 12``; empty
    where it does something, or where hits take different ways. ``lines`` is 0 for an object without lines.
    """

    executed: int
    instructions: int
    executed_lines: int
    lines: int
    leaves: str

    @property
    def said(self) -> str:
        """A sentence, where each hit leaves without having done anything."""
        if not self.leaves:
            return ""
        lines = f", {self.executed_lines} of {self.lines} lines" if self.lines else ""
        done = f"{self.executed} of {self.instructions} machine instructions{lines}"
        return f"each hit leaves at {self.leaves}, and has changed nothing: {done}"


def hit_way(program: LoadedCode, executed: Mapping[int, int], changes_nothing: Callable[[int], bool]) -> HitWay | None:
    """The way through a program; None where nothing of it was ``executed``.

    ``executed`` has the executions of all generated code, by address. ``changes_nothing`` tells of the address of a
    function whether it does. A hit has done something if it wrote to memory other than the program's stack, or called
    another function than those. It leaves early if the source has lines behind the last that it executes, or code,
    where the object has no lines.
    """
    listing = {each.address: each for each in decoded(program.code, program.address, _WORD)}
    counts = {at: times for at, times in executed.items() if at in listing}
    if not counts:
        return None
    line_of = _lines_by_address(listing, program.loaded)
    reached = {line for at in counts if (line := line_of.get(at)) is not None}
    every = list(dict.fromkeys((line.file, line.line) for line in program.source))
    path = _path(listing, counts, executed.keys())
    is_idle = bool(path) and not any(_does_something(each, changes_nothing) for each in path)
    return HitWay(
        executed=len(counts),
        instructions=len(listing),
        executed_lines=sum(line in reached for line in every),
        lines=len(every),
        leaves=_left_at(path, listing, line_of, every) if is_idle else "",
    )


def _lines_by_address(listing: Mapping[int, Instruction], loaded: Sequence[CodeLine]) -> Mapping[int, SourceLine]:
    lines: dict[int, SourceLine] = {}
    following = iter([*loaded, None])
    current: CodeLine | None = None
    ahead = next(following)
    for at in sorted(listing):
        while ahead is not None and ahead.address <= at:
            current, ahead = ahead, next(following)
        if current is not None and current.file and current.line:
            lines[at] = (current.file, current.line)
    return lines


def _path(
    listing: Mapping[int, Instruction], counts: Mapping[int, int], generated: Collection[int]
) -> Sequence[Instruction]:
    """The instructions that each hit executes, in order; empty where hits differ, repeat some, or go on elsewhere."""
    if len(set(counts.values())) > 1:
        return []
    path = list[Instruction]()
    at = min(counts)  # kernels with IBT or CFI may call it behind its first instruction
    while at in counts and len(path) < len(counts):
        instruction = listing[at]
        path.append(instruction)
        target = _target(instruction)
        if instruction.name == "ret":
            break
        if instruction.name == "jmp":
            if target is None or (target not in listing and target in generated):
                return []  # into another program: a tail call
            if target not in listing:
                break  # to the kernel's return thunk
            at = target
        elif _is_conditional(instruction) and target is not None and instruction.end not in counts:
            at = target
        else:
            at = instruction.end
    else:
        return []
    return path if len(path) == len(counts) else []


def _is_conditional(instruction: Instruction) -> bool:
    return instruction.name.startswith("j") and instruction.name != "jmp"


def _target(instruction: Instruction) -> int | None:
    return next((operand for operand in instruction.operands if isinstance(operand, int)), None)


def _does_something(instruction: Instruction, changes_nothing: Callable[[int], bool]) -> bool:
    if instruction.name == "call":
        target = _target(instruction)
        return target is None or not changes_nothing(target)
    first = next(iter(instruction.operands), None)
    writes = isinstance(first, Memory) and not instruction.name.startswith(_READ_ALONE)
    return writes and isinstance(first, Memory) and first.base not in _OWN_STACK


def _left_at(
    path: Sequence[Instruction],
    listing: Mapping[int, Instruction],
    line_of: Mapping[int, SourceLine],
    every: Sequence[SourceLine],
) -> str:
    last = next((each for each in reversed(path) if _is_conditional(each)), None)
    if not every:
        is_early = last is not None and len(path) < len(listing)
        return f"instruction {path.index(last) + 1}" if last is not None and is_early else ""
    passed = [found for each in path if (found := line_of.get(each.address)) in every and found is not None]
    line = None if last is None else line_of.get(last.address)
    if line not in every:  # the verifier has removed a jump that is always taken: the line before that of the end
        line = next((before for before in reversed(passed) if before != passed[-1]), passed[-1] if passed else None)
    if line is None or not {*every[every.index(line) + 1 :]} - {*passed}:
        return ""
    return f"{PurePath(line[0]).name}:{line[1]}"


def way_facts(ways: Mapping[str, HitWay]) -> Mapping[str, int | str]:
    """Parameters of a cell on its programs by name; how much is executed, of one program alone."""
    several = len(ways) > 1
    said = [f"{name}: {way.said}" if several else way.said for name, way in ways.items() if way.said]
    facts: dict[str, int | str] = {BPF_LEAVES: cut("; ".join(said), LONGEST_PHRASE)} if said else {}
    if several or not ways:
        return facts
    (way,) = ways.values()
    facts |= {BPF_EXECUTED: way.executed, BPF_CODE: way.instructions}
    facts |= {BPF_EXECUTED_LINES: way.executed_lines, BPF_LINES: way.lines} if way.lines else {}
    return facts | ({BPF_LEAVES_AT: way.leaves} if way.leaves else {})
