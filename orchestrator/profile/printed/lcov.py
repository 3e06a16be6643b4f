# SPDX-License-Identifier: GPL-2.0-only
"""Executed source lines as a tracefile of lcov."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_NO_TITLE = re.compile(r"\W+", re.ASCII)
"""What a test's name must not have: geninfo accepts letters, digits and underscores."""


_BREAKS = re.compile(r"[\x00-\x1f\x7f]")
"""What would begin another line of the file."""


def lcov_text(lines: Mapping[str, Mapping[int, int]], test: str = "") -> str:
    """A tracefile of lcov, which genhtml, editors and CI services read: geninfo(1), section FILES.

    ``lines`` has by source file and line number how often each was executed, 0 for not at all.
    Lines below 1 are left out.
    """
    return "".join(f"{line}\n" for file in sorted(lines) for line in _lcov_record(file, lines[file], test))


def _lcov_record(file: str, lines: Mapping[int, int], test: str) -> Iterator[str]:
    yield f"TN:{_NO_TITLE.sub('_', test)}"
    yield f"SF:{_BREAKS.sub('?', file)}"
    known = {line: count for line, count in sorted(lines.items()) if line > 0}
    yield from (f"DA:{line},{count}" for line, count in known.items())
    yield f"LF:{len(known)}"
    yield f"LH:{sum(count > 0 for count in known.values())}"
    yield "end_of_record"
