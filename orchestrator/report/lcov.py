# SPDX-License-Identifier: GPL-2.0-only
"""Executed source lines as a tracefile of lcov, which genhtml, editors and CI services read.

Format: geninfo(1), section FILES.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

_NO_TITLE = re.compile(r"\W+", re.ASCII)
"""What a test's name must not have: geninfo accepts letters, digits and underscores."""
_BREAKS = re.compile(r"[\x00-\x1f\x7f]")
"""What would begin another line of the file."""


class CoveredFunction(NamedTuple):
    """A function: the line where it begins, and how often it was entered."""

    line: int
    executed: int


def lcov_text(
    lines: Mapping[str, Mapping[int, int]],
    functions: Mapping[str, Mapping[str, CoveredFunction]] | None = None,
    test: str = "",
) -> str:
    """A tracefile of ``lines``: by source file and line number, how often each was executed, 0 for not at all.

    ``functions`` are by source file and name. Lines below 1 are left out.
    """
    found = functions or {}
    files = sorted({*lines, *found})
    return "".join(
        f"{line}\n" for file in files for line in _record(file, lines.get(file, {}), found.get(file, {}), test)
    )


def _record(file: str, lines: Mapping[int, int], functions: Mapping[str, CoveredFunction], test: str) -> Iterator[str]:
    yield f"TN:{_NO_TITLE.sub('_', test)}"
    yield f"SF:{_BREAKS.sub('?', file)}"
    begun = {_BREAKS.sub("?", name): one for name, one in functions.items() if one.line > 0}
    yield from (
        f"FN:{one.line},{name}" for name, one in sorted(begun.items(), key=lambda both: (both[1].line, both[0]))
    )
    yield from (f"FNDA:{one.executed},{name}" for name, one in sorted(begun.items()))
    if begun:
        yield f"FNF:{len(begun)}"
        yield f"FNH:{sum(one.executed > 0 for one in begun.values())}"
    known = {line: count for line, count in sorted(lines.items()) if line > 0}
    yield from (f"DA:{line},{count}" for line, count in known.items())
    yield f"LF:{len(known)}"
    yield f"LH:{sum(count > 0 for count in known.values())}"
    yield "end_of_record"
