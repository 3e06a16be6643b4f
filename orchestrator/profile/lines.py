# SPDX-License-Identifier: GPL-2.0-only
"""A profile by source line and inlined function, from debug information (DWARF)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import posixpath
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.artifacts.built_tree import source_of
from orchestrator.artifacts.debug_info import NoDebugInfoError
from orchestrator.artifacts.kernel_code import KernelCode, grouped
from orchestrator.artifacts.kernels import CODE_HINT, Kernel
from orchestrator.artifacts.machine_code import decoded
from orchestrator.artifacts.module_files import module_code
from orchestrator.errors import EvidenceError, HostError
from orchestrator.files import ScratchFolder
from orchestrator.plain_text import cut, plain_line, plain_text
from orchestrator.process import run
from orchestrator.profile.difference import not_executed
from orchestrator.profile.places import GENERATED
from orchestrator.report.sheet import number as shown_number
from orchestrator.results.stored_profile import CellProfile, InstructionCount, Place, SymbolProfile, stem

# Of 1,000 addresses in Debian's vmlinux of 6.1 (633 MB), with inlined frames: drgn 0.3.0 needs 0.6 s, llvm-symbolizer
# 14 0.5 to 1 s, addr2line 2.40 2 to 5 s, eu-addr2line 0.188 5 s. drgn alone also reads a module's file, in which
# llvm-symbolizer takes parameters for functions.
_READER = Path(__file__).with_name("drgn_locations.py")
_LIMIT = 300.0  # seconds; of 78,000 addresses
_LONGEST_PART = 1 << 20
"""Bytes of code; the largest function of Linux has some 50,000."""
_LARGEST_SOURCE = 8 << 20
_LONGEST_TITLE = 500  # characters


class Frame(NamedTuple):
    """A function, inlined or not, and the line in it, from 1 on. ``file`` is the path in the debug information."""

    function: Annotated[str, Field(max_length=4096)]
    file: Annotated[str, Field(max_length=4096)]
    line: Annotated[int, Field(ge=0, lt=1 << 31)]


_ANSWER = TypeAdapter(list[Annotated[list[Frame], Field(max_length=256)]])


class LineSource(Protocol):
    """Where the lines of some code are from: debug information, the kernel's own knowledge, or a run."""

    def frames(self, addresses: Iterable[int]) -> Mapping[int, tuple[Frame, ...]]:
        """The frames of each address, the innermost first; none if it has no line. Raises NoDebugInfoError."""

    def lines_of(self, *parts: range) -> Mapping[int, tuple[Frame, ...]]:
        """The frames of each instruction in these ranges of addresses, executed or not."""

    def parts_of(self, symbol: SymbolProfile) -> Sequence[range]:
        """The code of a profile's function."""

    def start_of(self, symbol: SymbolProfile) -> int:
        """The address of a profile's function here."""

    def check(self, symbols: Sequence[SymbolProfile]) -> None:
        """Raise NoDebugInfoError if the measured code is not here."""

    def title(self, file: str) -> str:
        """A source file's path without the folder of all sources."""

    def text(self, file: str, line: int) -> str:
        """A line without its indentation; empty if the source is not on this host."""


class SourceLines:
    """The source lines of one file with DWARF: a kernel's, at its addresses, or a module's, at those of its ``code``.

    ``roots`` are the folders that titles of source files leave out. In ``folders`` are the files that the debug
    information names relative to the folder that they were compiled in, as a kernel's build in its tree does, and those
    of a tree that has moved.
    """

    def __init__(self, file: Path, code: KernelCode, roots: Sequence[Path] = (), folders: Sequence[Path] = ()) -> None:
        self.file, self.code = file, code
        self._folders, self._built_in, self._places = folders, "", dict[str, str]()
        self._roots = [f"{root}/" for root in roots]
        self._known: dict[int, tuple[Frame, ...]] = {}
        start = None if code.is_module else code.function("start_kernel")
        for frame in () if start is None else self.frames([start])[start]:
            if f"/{frame.file}".endswith("/init/main.c"):
                self._built_in = frame.file.removesuffix("init/main.c")
                self._roots.append(self._place(frame.file).removesuffix("init/main.c"))
        self._known.clear()  # named before it was known where the kernel was built

    @classmethod
    def of_kernel(cls, file: Path, kernel: Kernel) -> SourceLines:
        """From ``kernel_debug_info()``. Raises HostError if the kernel's code is not available."""
        if kernel.code is None:
            what = f"the code of kernel {kernel.spec.name} is not available"
            raise HostError(what, where=str(kernel.spec.tree or kernel.image), hint=CODE_HINT)
        tree = kernel.headers
        return cls(file, kernel.code, folders=(tree, source_of(tree)))

    @classmethod
    def of_module(cls, file: Path, kernel: Kernel) -> SourceLines:
        """From ``module_debug_info()``. Raises LabError if it is not a module."""
        return cls(file, module_code(file), (file.parent / "sources", kernel.headers_makefile.parent, kernel.headers))

    def frames(self, addresses: Iterable[int]) -> Mapping[int, tuple[Frame, ...]]:
        """The frames of each address, the innermost first; none if it has no line. Raises NoDebugInfoError."""
        asked = list(addresses)
        new = sorted({address for address in asked if address not in self._known})
        if new:
            self._known.update(zip(new, self._read(new), strict=True))
        return {address: self._known[address] for address in asked}

    def lines_of(self, *parts: range) -> Mapping[int, tuple[Frame, ...]]:
        """The frames of each instruction in these ranges of addresses, executed or not."""
        addresses = (
            instruction.address
            for part in parts
            for instruction in decoded(
                self.code.read(part.start, min(len(part), _LONGEST_PART)), part.start, self.code.word
            )
        )
        return self.frames(addresses)

    def parts_of(self, symbol: SymbolProfile) -> Sequence[range]:
        """The code of a profile's function, and what the compiler has put apart as unlikely."""
        starts = [self.start_of(symbol), *(cold.address for cold in self.code.named(f"{symbol.name}.cold"))]
        return [range(start, self.code.following(start) or start) for start in starts]

    def start_of(self, symbol: SymbolProfile) -> int:
        """The address of a profile's function here. Raises NoDebugInfoError if the file has none of its name."""
        starts = (
            [function.address for function in self.code.named(symbol.name)] if self.code.is_module else [symbol.address]
        )
        if not starts:
            raise self._another_build(f"it has no {symbol.title}")
        return starts[0] if len(starts) == 1 else max(starts, key=lambda start: self._equal(symbol, start))

    def check(self, symbols: Sequence[SymbolProfile]) -> None:
        """Raise NoDebugInfoError if most of the measured code is not in this file."""
        equal = sum(self._equal(symbol, self.start_of(symbol)) for symbol in symbols)
        executed = sum(len(symbol.instructions) for symbol in symbols)
        if executed > 2 * equal:
            raise self._another_build(f"{executed - equal} of {executed} executed instructions differ")

    def _equal(self, symbol: SymbolProfile, start: int) -> int:
        """How many executed instructions are in the file, but for operands of four bytes: the kernel relocates them."""
        codes = [
            (self.code.read(start + instruction.offset, len(instruction.code) // 2), instruction.code)
            for instruction in symbol.instructions
        ]
        return sum(here[: max(1, len(here) - 4)].hex() == code[: max(2, len(code) - 8)] for here, code in codes)

    def _another_build(self, why: str) -> NoDebugInfoError:
        return NoDebugInfoError(f"another build's code than the measured one: {why}", where=str(self.file))

    def title(self, file: str) -> str:
        """A source file's path without the folder of all sources."""
        path = posixpath.normpath(file)
        if not self.code.is_module and "/arch/x86/" in path:  # Debian's assembler files have the place of the build
            return f"arch/x86/{path.partition('/arch/x86/')[2]}"
        return next((path.removeprefix(root) for root in self._roots if path.startswith(root)), path)

    def text(self, file: str, line: int) -> str:
        """A line without its indentation; empty if the source is not on this host."""
        texts = source_text(file)
        return texts[line - 1].strip() if line <= len(texts) else ""

    def _read(self, addresses: Sequence[int]) -> list[tuple[Frame, ...]]:
        if importlib.util.find_spec("drgn") is None:
            raise HostError("source lines need drgn, which is not installed", hint="pip install 'probe-lab[source]'")
        parts = self.code.sections if self.code.is_module else {}
        request = {
            "file": str(self.file),
            "arch": "I386" if self.code.word == 4 else "X86_64",
            "sections": {name: part.address for name, part in parts.items()},
            "addresses": addresses,
        }
        with ScratchFolder("orchestrator-lines-") as scratch:
            (scratch / "request.json").write_text(json.dumps(request))
            finished = run([sys.executable, "-P", str(_READER), str(scratch / "request.json")], time_limit=_LIMIT)
        what = "the debug information cannot be read"
        finished.or_raise(NoDebugInfoError, what, where=str(self.file))
        frames_of_each: list[list[Frame]] = []
        with contextlib.suppress(ValidationError):
            frames_of_each = _ANSWER.validate_json(finished.stdout)
        if len(frames_of_each) != len(addresses):
            raise NoDebugInfoError(what, where=str(self.file))
        return [
            tuple(frame._replace(file=self._place(frame.file)) for frame in frames if frame.line)
            for frames in frames_of_each
        ]

    def _place(self, file: str) -> str:
        """The path of a source file on this host, or as the debug information names it."""
        if file not in self._places:
            below = posixpath.normpath(file.removeprefix(self._built_in) if self._built_in else file)
            names = [file, below] if not posixpath.isabs(file) else [below]
            there = (folder / name for folder in self._folders for name in names if not posixpath.isabs(name))
            is_there = posixpath.isabs(file) and Path(file).is_file()
            path = file if is_there else next((str(place) for place in there if place.is_file()), file)
            self._places[file] = posixpath.normpath(path)
        return self._places[file]


class CodeLines:
    """The source lines of generated code, at its addresses: a user's BPF programs, of which the kernel knows the lines.

    A source file is read only if it has the measured lines: at its path, or the copy in a run's ``kept`` folders.
    """

    def __init__(self, profile: CellProfile, kept: Sequence[Path] = ()) -> None:
        self._lines, self._addresses = profile.code_lines, [code_line.address for code_line in profile.code_lines]
        texts: dict[str, dict[int, str]] = defaultdict(dict)
        for line in self._lines:
            if line.line:
                texts[line.file][line.line] = line.text
        folders = sorted({posixpath.dirname(file) for file in texts if posixpath.isabs(file) and file.endswith(".c")})
        self._files: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self._texts: dict[str, Mapping[int, str]] = {}
        for file, lines in texts.items():
            parts = [posixpath.relpath(file, folder) for folder in folders if posixpath.isabs(file)]
            title = next((part for part in parts if not part.startswith("../")), file)
            copies = [str(folder / part.replace("..", "_")) for folder in kept for part in parts]
            place = next((place for place in (file, *copies) if _has_lines(place, lines)), title.lstrip("/"))
            self._files[file], self._titles[place], self._texts[place] = place, title, lines

    def frames(self, addresses: Iterable[int]) -> Mapping[int, tuple[Frame, ...]]:
        """The line of each address, of a function that the symbol names; none if it has no line."""
        lines = {address: self._lines[max(0, bisect_right(self._addresses, address) - 1)] for address in addresses}
        return {
            address: (Frame("", self._files[line.file], line.line),) if line.line and line.address <= address else ()
            for address, line in lines.items()
        }

    def lines_of(self, *parts: range) -> Mapping[int, tuple[Frame, ...]]:
        """The line of each address at which one begins."""
        return self.frames(self._addresses)

    def parts_of(self, symbol: SymbolProfile) -> Sequence[range]:
        """All of the code: a profile has the lines of no function that was not executed."""
        return [range(self._addresses[0], self._addresses[-1])]

    def start_of(self, symbol: SymbolProfile) -> int:
        return symbol.address

    def check(self, symbols: Sequence[SymbolProfile]) -> None:
        """The kernel that executed the code has said its lines."""

    def title(self, file: str) -> str:
        return self._titles[file]

    def text(self, file: str, line: int) -> str:
        return self._texts[file].get(line, "")


def _has_lines(file: str, texts: Mapping[int, str]) -> bool:
    lines = dict(enumerate(map(str.strip, source_text(file)), 1))
    return all(text and lines.get(number, "").startswith(text) for number, text in texts.items())


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
    for symbol, of, located in _located(profile, sources):
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


def executed_lines(executed: Iterable[tuple[int, tuple[Frame, ...]]]) -> Iterator[tuple[Frame, int]]:
    """How often lines were executed, from the executions of each instruction: for each place that one is inlined to.

    A line counts as often as its most executed instruction, a line that only calls an inlined function as often as the
    rarest one there.
    """
    counts: dict[tuple[Frame, ...], int] = {}
    calls: dict[tuple[Frame, ...], int] = {}
    for count, frames in executed:
        if frames:
            counts[frames] = max(counts.get(frames, 0), count)
        for at in range(1, len(frames)):  # an inlined loop is called as often as its rarest instruction
            known = calls.get(frames[at:], 0)
            calls[frames[at:]] = min(known or count, count or known)
    return ((frames[0], max(counts.get(frames, 0), calls.get(frames, 0))) for frames in {**counts, **calls})


def coverage(profile: CellProfile, sources: Sources) -> Mapping[str, Mapping[int, int]]:
    """How often each line of the executed functions was executed, 0 for not at all; by file and line."""
    lines: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for symbol, of, located in _located(profile, sources, is_whole=True):
        if of is None:
            continue
        whole = [(0, frames) for frames in of.lines_of(*of.parts_of(symbol)).values()]
        executed = [(instruction_count.executed, frames) for instruction_count, frames in located]
        for inner, count in executed_lines([*whole, *executed]):
            lines[inner.file][inner.line] += count
    return lines


def _located(
    profile: CellProfile, sources: Sources, *, is_whole: bool = False
) -> Iterator[tuple[SymbolProfile, LineSource | None, Sequence[tuple[InstructionCount, tuple[Frame, ...]]]]]:
    """Each symbol with its source, and its executed instructions with their frames; whole functions are read."""

    def source(symbol: SymbolProfile) -> LineSource | None:
        key = GENERATED if symbol.place == "generated" else symbol.module
        return None if symbol.place == "user" else sources.get(key)

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


@lru_cache(maxsize=512)
def source_text(file: str) -> Sequence[str]:
    """The lines of a source file; none if it is not on this host."""
    path = Path(file)
    try:
        if not path.is_absolute() or not path.is_file() or path.stat().st_size > _LARGEST_SOURCE:
            return ()
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ()
