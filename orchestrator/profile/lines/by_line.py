# SPDX-License-Identifier: GPL-2.0-only
"""A profile by source line and inlined function."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import NamedTuple

from orchestrator.artifacts.symbol_listing import grouped
from orchestrator.errors import EvidenceError
from orchestrator.plain_text import cut, plain_line, plain_text
from orchestrator.profile.code.annotated_code import not_executed
from orchestrator.profile.counted.generated_code import GENERATED
from orchestrator.profile.lines.line_source import Frame, LineSource, source_text
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, Place, SymbolProfile, stem
from orchestrator.report.figures import number as shown_number

_LONGEST_TITLE = 500  # characters


Sources = Mapping[str | None, LineSource]
"""The lines of a cell's code: by module's name, None for the kernel, GENERATED for a user's BPF programs."""


class FunctionLine(NamedTuple):
    """A line of ``function``, which may be inlined into ``symbol``; ``text`` if the source is on this host.

    ``file`` is a title, ``path`` is in the debug information. Without debug information the file is empty.
    """

    file: str
    line: int
    function: str
    symbol: str
    path: str = ""
    text: str = ""

    @property
    def title(self) -> str:
        """``kernel/kprobes.c:348 get_kprobe``, or ``include/linux/hash.h:78 hash_ptr in get_kprobe``."""
        is_not_inlined = self.function in ("", self.symbol.partition(" [")[0])
        name = self.symbol if is_not_inlined else f"{self.function} in {self.symbol}"
        return plain_line(f"{f'{self.file}:{self.line}' if self.file else NO_LINE} {name}")


NO_LINE = "(no line)"
LineCounts = Mapping[FunctionLine, Sequence[InstructionCount]]
"""The executed instructions of each line, in order."""


def by_line(profile: CellProfile, sources: Sources) -> LineCounts:
    """A cell's instructions by source line. Raises NoDebugInfoError."""
    counts: dict[FunctionLine, list[InstructionCount]] = defaultdict(list)
    for symbol, of, located in located_instructions(profile, sources):
        for count, frames in located:
            line = FunctionLine("", 0, "", symbol.title)
            if of is not None and frames:
                function, path, number = frames[0]
                line = FunctionLine(
                    of.title(path), number, function or symbol.name, symbol.title, path, of.text(path, number)
                )
            counts[line].append(count)
    return counts


def with_lines(
    profile: CellProfile, counts: LineCounts, names: Mapping[FunctionLine, FunctionLine] = MappingProxyType({})
) -> CellProfile:
    """The profile with a symbol for each line, which ``names`` may rename.

    Raises EvidenceError if the sum is not that of the symbols.
    """
    lines: dict[tuple[str, Place], list[InstructionCount]] = defaultdict(list)
    places = {symbol.title: symbol.place for symbol in profile.symbols}
    for line, instructions in counts.items():
        lines[cut(names.get(line, line).title, _LONGEST_TITLE), places[line.symbol]] += instructions
    symbols = [
        SymbolProfile.model_construct(
            name=name, place=place, module=None, address=0, instructions=tuple(instruction_counts), misses=()
        )
        for (name, place), instruction_counts in lines.items()
    ]
    symbols.sort(key=lambda symbol: (-symbol.executed, symbol.name))
    made = profile.model_copy(update={"symbols": tuple(symbols), "stacks": (), "caches": ()})
    if made.executed != profile.executed:
        what = f"the lines of cell {profile.cell} have {made.executed} instructions, and its symbols {profile.executed}"
        raise EvidenceError(what)
    return made


def same_lines(before: LineCounts, after: LineCounts) -> Mapping[FunctionLine, FunctionLine]:
    """For lines before, the lines that they are after, or a name of their own if another line now has their number.

    The executed lines of a function, inlined into the same symbol, are aligned by their texts: so a line keeps its
    identity if code before it has changed. Between equal lines, as many others on both sides are lines that were
    changed. Without the source a line is known by its distance from the function's first one, which is always executed.
    """
    lines: dict[FunctionLine, FunctionLine] = {}
    first, second = _by_function(before), _by_function(after)
    for (file, name, symbol), ones in first.items():
        other_lines = second.get((file, name, symbol), [])
        has_text = all(line.text for line in (*ones, *other_lines))
        keys: list[list[object]] = [[line.text for line in side] for side in (ones, other_lines)]
        if not has_text:
            keys = [[line.line - side[0].line for line in side] for side in (ones, other_lines)]
            if keys[0] != keys[1] and name != symbol.partition(" [")[0]:  # of an inlined function any line may be first
                keys = [[line.line for line in side] for side in (ones, other_lines)]
        for tag, at, end, at_other, end_other in SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes():
            if tag == "equal" or (has_text and end - at == end_other - at_other):
                lines |= zip(ones[at:end], other_lines[at_other:end_other], strict=True)
    titles = {line.title for line in after}
    others_now = {line for line in before if line not in lines and line.file and line.title in titles}
    return lines | {line: line._replace(file=f"before: {line.file}") for line in others_now}


def _by_function(lines: Iterable[FunctionLine]) -> Mapping[tuple[str, str, str], Sequence[FunctionLine]]:
    return grouped(((line.file, stem(line.function), stem(line.symbol)), line) for line in sorted(lines))


def annotated_lines(cells: Sequence[tuple[CellProfile, LineCounts]], function: str) -> str:
    """The source of the functions of one name with instructions per call; only executed lines where it is missing.

    What is inlined follows its function. Raises UsageError if no cell's calls execute one.
    """
    texts: list[str] = []
    for profile, counts in cells:
        lines = [line for line in counts if function in (line.symbol, line.symbol.partition(" [")[0])]
        texts += [profile.cell] if lines else []
        for (file, name, symbol), function_lines in sorted(
            _by_function(lines).items(), key=lambda pair: pair[0][1] not in pair[0][2]
        ):
            of = {
                line.line: sum(instruction_count.executed for instruction_count in counts[line]) / profile.calls
                for line in function_lines
            }
            source, known = source_text(function_lines[0].path), {line.line: line.text for line in function_lines}
            texts += ["", f"{name} in {symbol}, {file}" if file else f"{NO_LINE} {symbol}"]
            for number in range(min(of), max(of) + 1) if max(of) <= len(source) else sorted(of):
                count = shown_number(of[number]) if number in of else ""
                text = source[number - 1] if 0 < number <= len(source) else known.get(number, "")
                texts.append(f"{count:>8} {number or '':>6}  {text}".rstrip())
    if not texts:
        raise not_executed([profile for profile, _ in cells], function)
    return plain_text("\n".join(texts))


def source_key(symbol: SymbolProfile) -> str | None:
    """The key among ``Sources`` of a symbol's code."""
    return GENERATED if symbol.place == "generated" else symbol.module


def located_instructions(
    profile: CellProfile, sources: Sources, *, is_whole: bool = False
) -> Iterator[tuple[SymbolProfile, LineSource | None, Sequence[tuple[InstructionCount, tuple[Frame, ...]]]]]:
    """Each symbol with its source, and its executed instructions with their frames; whole functions are read."""

    def source(symbol: SymbolProfile) -> LineSource | None:
        return None if symbol.place == "user" else sources.get(source_key(symbol))

    for line_source in sources.values():  # all at once: reading a kernel's file takes a fifth of a second
        symbols = [symbol for symbol in profile.symbols if source(symbol) is line_source]
        line_source.check(symbols)
        line_source.frames(
            line_source.start_of(symbol) + here.offset for symbol in symbols for here in symbol.instructions
        )
        if is_whole:
            line_source.lines_of(*(part for symbol in symbols for part in line_source.parts_of(symbol)))
    for symbol in profile.symbols:
        of = source(symbol)
        if of is None:
            yield symbol, of, [(instruction, ()) for instruction in symbol.instructions]
        else:
            start = of.start_of(symbol)
            frames = of.frames(start + instruction.offset for instruction in symbol.instructions)
            yield symbol, of, [(instruction, frames[start + instruction.offset]) for instruction in symbol.instructions]
