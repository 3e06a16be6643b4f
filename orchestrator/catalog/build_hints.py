# SPDX-License-Identifier: GPL-2.0-only
"""What to do about an error that a module often fails to build with."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache

from orchestrator.catalog.data import Fact, read


class _Hint(Fact):
    pattern: str
    hint: str

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)


class _Hints(Fact):
    hints: list[_Hint]


def build_hint(line: str) -> str:
    """A hint for the line of an error of gcc, modpost or make; empty where none is known."""
    for one in _hints().hints:
        found = one.regex.search(line)
        if found is not None:
            return one.hint.format(*found.groups())
    return ""


@lru_cache(maxsize=1)
def _hints() -> _Hints:
    return _Hints.model_validate(read("build_hints.yaml"))
