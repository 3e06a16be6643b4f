# SPDX-License-Identifier: GPL-2.0-only
"""The source lines of a kernel or module, from its debug information (DWARF)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import posixpath
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from orchestrator.artifacts.built_tree import source_of
from orchestrator.artifacts.debug_info import NoDebugInfoError
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.machine_code import decoded
from orchestrator.artifacts.module_code import module_code
from orchestrator.artifacts.ready_kernels import CODE_HINT, Kernel
from orchestrator.errors import HostError
from orchestrator.files import ScratchFolder
from orchestrator.process import run
from orchestrator.profile.lines.line_source import Frame, source_text
from orchestrator.profile.stored.cell_profile import SymbolProfile

# Of 1,000 addresses in Debian's vmlinux of 6.1 (633 MB), with inlined frames: drgn 0.3.0 needs 0.6 s, llvm-symbolizer
# 14 0.5 to 1 s, addr2line 2.40 2 to 5 s, eu-addr2line 0.188 5 s. drgn alone also reads a module's file, in which
# llvm-symbolizer takes parameters for functions.
_READER = Path(__file__).with_name("drgn_locations.py")


_LIMIT = 300.0  # seconds; of 78,000 addresses


_LONGEST_PART = 1 << 20
"""Bytes of code; the largest function of Linux has some 50,000."""


_ANSWER = TypeAdapter(list[Annotated[list[Frame], Field(max_length=256)]])


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
