# SPDX-License-Identifier: GPL-2.0-only
"""The source lines of generated code, which a profile has itself."""

from __future__ import annotations

import posixpath
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator.profile.lines.line_source import Frame, source_text
from orchestrator.profile.stored.cell_profile import CellProfile, SymbolProfile


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
