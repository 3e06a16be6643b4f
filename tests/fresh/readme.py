# SPDX-License-Identifier: GPL-2.0-only
"""Which two commands does the README give a newcomer, and which table does it show?"""

from __future__ import annotations

import re
from dataclasses import dataclass

from first_table import FirstTable, read_table

_SECTION = re.compile(r"^## Two commands\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class TwoCommands:
    """Lines for a shell, as they stand there, comments included."""

    first: str
    second: str


def two_commands(readme: str) -> TwoCommands:
    """The first fenced block of the section "Two commands". Raises ValueError where it has not two lines."""
    block = _BLOCK.search(_section(readme))
    lines = block[1].splitlines() if block else []
    if len(lines) != 2:
        raise ValueError(f'README.md: the section "## Two commands" begins with a block of {len(lines)} lines, not two')
    return TwoCommands(*lines)


def promised_table(readme: str) -> FirstTable:
    """The table that the section shows. Raises ValueError where there is none."""
    return read_table("".join(_BLOCK.findall(_section(readme))))


def _section(readme: str) -> str:
    match = _SECTION.search(readme)
    return match[1] if match else ""
