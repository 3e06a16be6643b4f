# SPDX-License-Identifier: GPL-2.0-only
"""Which two commands does the README tell a newcomer to run?"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SECTION = re.compile(r"^## Two commands\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"(?:^    .*\n)+", re.MULTILINE)


@dataclass(frozen=True)
class TwoCommands:
    """Lines for a shell, as they stand there, comments included."""

    first: str
    second: str


def two_commands(readme: str) -> TwoCommands:
    """The first indented block of the section "Two commands". Raises ValueError where it has not two lines."""
    section = _SECTION.search(readme)
    block = _BLOCK.search(section[1]) if section else None
    lines = block[0].splitlines() if block else []
    if len(lines) != 2:
        raise ValueError(f'README.md: the section "## Two commands" begins with {len(lines)} indented lines, not two')
    return TwoCommands(*(line.strip() for line in lines))
