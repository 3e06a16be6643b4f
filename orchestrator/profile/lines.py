# SPDX-License-Identifier: GPL-2.0-only
"""A profile by source line and inlined function, from debug information (DWARF)."""

from __future__ import annotations

import importlib.util
import json
import posixpath
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.debug_info import NoDebugInfoError, kernel_debug_info, module_debug_info
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import CODE_HINT, Kernel, ready_kernel
from orchestrator.artifacts.machine_code import decoded
from orchestrator.artifacts.module_files import module_code
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.errors import EvidenceError, HostError, LabError
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.process import run
from orchestrator.report.lcov import CoveredFunction
from orchestrator.results.contract import CellRecord
from orchestrator.results.origin import Boot, origin_of
from orchestrator.results.stored_profile import (
    NO_LINE,
    CellProfile,
    LineDifference,
    LineProfile,
    SourceLine,
    SymbolProfile,
    stem,
)

# Of 1,000 addresses in Debian's vmlinux of 6.1 (633 MB), with inlined frames: drgn 0.3.0 needs 0.6 s, llvm-symbolizer
# 14 0.5 to 1 s, addr2line 2.40 2 to 5 s, eu-addr2line 0.188 5 s. drgn alone also reads a module's file, in which
# llvm-symbolizer takes parameters for functions.
_READER = Path(__file__).with_name("drgn_locations.py")
_LIMIT = 300.0  # seconds; of 78,000 addresses
_LONGEST_PART = 1 << 20
"""Bytes of code; the largest function of Linux has some 50,000."""
_LARGEST_SOURCE = 8 << 20


class Frame(NamedTuple):
    """A function, inlined or not, and the line in it, from 1 on. ``file`` is the path in the debug information."""

    function: Annotated[str, Field(max_length=4096)]
    file: Annotated[str, Field(max_length=4096)]
    line: Annotated[int, Field(ge=0, lt=1 << 31)]


_ANSWER = TypeAdapter(list[Annotated[list[Frame], Field(max_length=256)]])


class SourceLines:
    """The source lines of one file with DWARF: a kernel's, at its addresses, or a module's, at those of its ``code``.

    ``roots`` are the folders that titles of source files leave out.
    """

    def __init__(self, file: Path, code: KernelCode, roots: Sequence[Path] = ()) -> None:
        self.file, self.code = file, code
        self._roots = [f"{root}/" for root in roots]
        self._known: dict[int, tuple[Frame, ...]] = {}
        start = None if code.is_module else code.function("start_kernel")
        for frame in () if start is None else self.frames([start])[start]:
            if frame.file.endswith("/init/main.c"):
                self._roots.append(frame.file.removesuffix("init/main.c"))

    @classmethod
    def of_kernel(cls, file: Path, kernel: Kernel) -> SourceLines:
        """From ``kernel_debug_info()``. Raises HostError if the kernel's code is not available."""
        if kernel.code is None:
            what = f"the code of kernel {kernel.spec.name} is not available"
            raise HostError(what, where=str(kernel.spec.tree or kernel.image), hint=CODE_HINT)
        return cls(file, kernel.code)

    @classmethod
    def of_module(cls, file: Path, kernel: Kernel) -> SourceLines:
        """From ``module_debug_info()``. Raises LabError if it is not a module."""
        return cls(file, module_code(file), (file.parent / "sources", kernel.headers_makefile.parent, kernel.headers))

    def frames(self, addresses: Iterable[int]) -> Mapping[int, tuple[Frame, ...]]:
        """The frames of each address, the innermost first; none if it has no line. Raises NoDebugInfoError."""
        wanted = list(addresses)
        new = sorted({address for address in wanted if address not in self._known})
        if new:
            self._known.update(zip(new, self._read(new), strict=True))
        return {address: self._known[address] for address in wanted}

    def lines_of(self, *parts: range) -> Mapping[int, tuple[Frame, ...]]:
        """The frames of each instruction in these ranges of addresses, executed or not."""
        found = (
            one.address
            for part in parts
            for one in decoded(self.code.read(part.start, min(len(part), _LONGEST_PART)), part.start, self.code.word)
        )
        return self.frames(found)

    def parts_of(self, symbol: SymbolProfile) -> Sequence[range]:
        """The code of a profile's function, and what the compiler has put apart as unlikely."""
        starts = [self.start_of(symbol), *(one.address for one in self.code.named(f"{symbol.name}.cold"))]
        return [range(start, self.code.following(start) or start) for start in starts]

    def start_of(self, symbol: SymbolProfile) -> int:
        """The address of a profile's function here. Raises NoDebugInfoError if the file has none of its name."""
        starts = [one.address for one in self.code.named(symbol.name)] if self.code.is_module else [symbol.address]
        if not starts:
            raise self._another_build(f"it has no {symbol.title}")
        return max(starts, key=lambda start: self._equal(symbol, start))

    def check(self, symbols: Sequence[SymbolProfile]) -> None:
        """Raise NoDebugInfoError if most of the measured code is not in this file."""
        equal = sum(self._equal(symbol, self.start_of(symbol)) for symbol in symbols)
        executed = sum(len(symbol.instructions) for symbol in symbols)
        if executed > 2 * equal:
            raise self._another_build(f"{executed - equal} of {executed} executed instructions differ")

    def _equal(self, symbol: SymbolProfile, start: int) -> int:
        """How many executed instructions are in the file, but for operands of four bytes: the kernel relocates them."""
        codes = [(self.code.read(start + one.offset, len(one.code) // 2), one.code) for one in symbol.instructions]
        return sum(here[: max(1, len(here) - 4)].hex() == code[: max(2, len(code) - 8)] for here, code in codes)

    def _another_build(self, why: str) -> NoDebugInfoError:
        return NoDebugInfoError(f"another build's code than the measured one: {why}", where=str(self.file))

    def title(self, file: str) -> str:
        """A source file's path without the folder of all sources."""
        path = posixpath.normpath(file)
        if not self.code.is_module and "/arch/x86/" in path:  # Debian's assembler files have the place of the build
            return f"arch/x86/{path.partition('/arch/x86/')[2]}"
        return next((path.removeprefix(root) for root in self._roots if path.startswith(root)), path)

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
        try:
            found = _ANSWER.validate_json(finished.stdout)
        except ValidationError:
            raise NoDebugInfoError(what, where=str(self.file)) from None
        if len(found) != len(addresses):
            raise NoDebugInfoError(what, where=str(self.file))
        return [tuple(frame for frame in frames if frame.line) for frames in found]


Sources = Mapping[str | None, SourceLines]
"""The lines of a cell's code: by module's name, None for the kernel."""


def stored_sources(context: BuildContext, directory: Path, cell: CellRecord, spec: KernelSpec) -> Sources:
    """The sources of a stored cell's code, fetched or built on demand; what has none is said.

    Raises LabError if nothing has any.
    """
    boot = next((one for one in origin_of(directory).boots if one.has(cell)), None)
    if boot is None:
        raise NoDebugInfoError(f"the run does not record what cell {cell.id} was measured on", where=str(directory))
    kernel = ready_kernel(context, spec)
    if sha256_of(kernel.image) != boot.kernel.image_sha256:
        what = f"kernel {spec.name} is another build's than that of the run"
        raise NoDebugInfoError(what, where=str(kernel.image), hint="measure the cell again")
    makers: dict[str | None, Callable[[], SourceLines]] = {
        module.name: lambda module=module: SourceLines.of_module(module_debug_info(context, kernel, module), kernel)  # type: ignore[misc]
        for module in _modules(context, directory, boot, cell)
    }
    makers[None] = lambda: SourceLines.of_kernel(kernel_debug_info(context, kernel), kernel)
    found: dict[str | None, SourceLines] = {}
    failures: list[LabError] = []
    for name, make in makers.items():
        try:
            found[name] = make()
        except LabError as error:
            failures.append(error)
    if not found:
        raise failures[0]
    for failure in failures:
        context.say(f"no lines: {failure.what}")
    return found


def _modules(context: BuildContext, directory: Path, boot: Boot, cell: CellRecord) -> Iterator[Module]:
    """The modules of a stored cell, with the sources that the run has kept."""
    for name, module in boot.modules.items():
        if name.partition(": ")[0] != cell.id:
            continue
        kept = directory / "modules" / boot.kernel.name / f"{module.name}-{module.key[:8]}"
        own = kept / f"{module.name}.ko"
        places = [context.cache.root / "modules" / module.key, context.cache.root / "module-folders" / module.key[:24]]
        file = next((place / own.name for place in places if (place / own.name).exists()), own)
        yield Module(module.name, file, module.key, None if own.exists() else kept)


def line_profile(profile: CellProfile, sources: Sources) -> LineProfile:
    """A cell's instructions by source line. Raises EvidenceError if their sum is not that of the symbols."""
    counts: dict[SourceLine, int] = defaultdict(int)
    for symbol, found in _located(profile, sources):
        of = sources.get(symbol.module)
        for executed, frames in found:
            line = SourceLine("", 0, NO_LINE, symbol.title)
            if of is not None and frames:
                inner = frames[0]
                line = SourceLine(of.title(inner.file), inner.line, inner.function, symbol.title, _text(inner))
            counts[line] += executed
    if sum(counts.values()) != profile.executed:
        what = f"the lines of cell {profile.cell} have {sum(counts.values())} instructions, and its symbols"
        raise EvidenceError(f"{what} {profile.executed}")
    return LineProfile(profile, sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def line_differences(before: LineProfile, after: LineProfile) -> Sequence[LineDifference]:
    """The lines that differ, the largest change first.

    The executed lines of a function, inlined into the same symbol, are aligned by their texts, or where there is no
    source by their numbers: so a line keeps its identity if code before it has changed. Between equal lines, as many
    others on both sides are taken for lines that were changed.
    """
    sides = [_by_function(one) for one in (before, after)]
    found: list[LineDifference] = []
    for function in {**sides[0], **sides[1]}:
        first, second = (side.get(function, []) for side in sides)
        has_text = all(line.text for line, _ in (*first, *second))
        keys = [[line.text if has_text else str(line.line) for line, _ in side] for side in (first, second)]
        matcher = SequenceMatcher(None, keys[0], keys[1], autojunk=False)
        for tag, at, end, at_other, end_other in matcher.get_opcodes():
            ones, others = first[at:end], second[at_other:end_other]
            if tag == "equal" or (has_text and len(ones) == len(others)):
                found += [LineDifference(other[0], one[1], other[1]) for one, other in zip(ones, others, strict=True)]
            else:
                found += [LineDifference(line, count, None) for line, count in ones]
                found += [LineDifference(line, None, count) for line, count in others]
    differing = [one for one in found if one.before != one.after]
    return sorted(differing, key=lambda one: (-abs(one.change), one.line))


_Counted = tuple[SourceLine, Fraction]


def _by_function(profile: LineProfile) -> Mapping[tuple[str, str, str], Sequence[_Counted]]:
    """The lines of each function of a file in a symbol, in order, with instructions per call."""
    found: dict[tuple[str, str, str], list[_Counted]] = defaultdict(list)
    for line, count in sorted(profile.lines):
        found[line.file, stem(line.function), stem(line.symbol)].append((line, profile.profile.per_call(count)))
    return found


def coverage(
    profile: CellProfile, sources: Sources
) -> tuple[Mapping[str, Mapping[int, int]], Mapping[str, Mapping[str, CoveredFunction]]]:
    """How often each line of the executed functions was executed, 0 for not at all, and the functions.

    By file, as ``lcov_text`` takes them. A line counts as often as its most executed instruction, for each place that
    it is inlined to; a line with a call that was inlined counts as well.
    """
    lines: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    functions: dict[str, dict[str, CoveredFunction]] = defaultdict(dict)
    located = [(symbol, found) for symbol, found in _located(profile, sources) if _is_placed(symbol, sources)]
    for module, of in sources.items():  # all at once: reading a kernel's file takes a fifth of a second
        of.lines_of(*(part for symbol, _ in located if symbol.module == module for part in of.parts_of(symbol)))
    for symbol, found in located:
        of, most = sources[symbol.module], dict[tuple[Frame, ...], int]()
        for frames in of.lines_of(*of.parts_of(symbol)).values():
            most |= {frames[at:]: 0 for at in range(len(frames))}
        for executed, frames in found:
            for at in range(len(frames)):
                most[frames[at:]] = max(most.get(frames[at:], 0), executed)
        for frames, executed in most.items():
            lines[frames[0].file][frames[0].line] += executed
        entry = of.frames([of.start_of(symbol)])[of.start_of(symbol)]
        if entry:
            entered = next((one.executed for one in symbol.instructions if one.offset == 0), 0)
            functions[entry[-1].file][symbol.name] = CoveredFunction(entry[-1].line, entered)
    return lines, functions


def _located(
    profile: CellProfile, sources: Sources
) -> Iterator[tuple[SymbolProfile, Sequence[tuple[int, tuple[Frame, ...]]]]]:
    """The executions and the frames of each instruction, by symbol."""
    wanted: dict[str | None, list[int]] = defaultdict(list)
    starts: dict[int, int] = {}
    placed = [one for one in profile.symbols if _is_placed(one, sources)]
    for module, of in sources.items():
        of.check([symbol for symbol in placed if symbol.module == module])
    for symbol in placed:
        starts[id(symbol)] = sources[symbol.module].start_of(symbol)
        wanted[symbol.module] += [starts[id(symbol)] + one.offset for one in symbol.instructions]
    found = {module: sources[module].frames(addresses) for module, addresses in wanted.items()}
    for symbol in profile.symbols:
        start, frames = starts.get(id(symbol)), found.get(symbol.module, {})
        yield (
            symbol,
            [(one.executed, () if start is None else frames[start + one.offset]) for one in symbol.instructions],
        )


def _is_placed(symbol: SymbolProfile, sources: Sources) -> bool:
    return symbol.place in ("kernel", "module") and symbol.module in sources


def _text(frame: Frame) -> str:
    lines = source_text(frame.file)
    return lines[frame.line - 1].strip() if frame.line <= len(lines) else ""


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
