# SPDX-License-Identifier: GPL-2.0-only
"""Where the source lines of code come from: the interface of all sources, and the text of source files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple, Protocol

from pydantic import Field

from orchestrator.profile.stored.cell_profile import SymbolProfile

_LARGEST_SOURCE = 8 << 20


class Frame(NamedTuple):
    """A function, inlined or not, and the line in it, from 1 on. ``file`` is the path in the debug information."""

    function: Annotated[str, Field(max_length=4096)]
    file: Annotated[str, Field(max_length=4096)]
    line: Annotated[int, Field(ge=0, lt=1 << 31)]


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
