# SPDX-License-Identifier: GPL-2.0-only
"""Does the page about the architecture name each folder of the package, and none that is gone?"""

from __future__ import annotations

import re
from pathlib import Path

import orchestrator

PACKAGE = Path(orchestrator.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"


def test_the_tree_of_the_page_is_that_of_the_package() -> None:
    tree = PAGE.read_text(encoding="utf-8").partition("## Where things are")[2].split("```")[1]
    parents: list[str] = []
    named = []
    for indent, folder in re.findall(r"^( *)(\w+)/  ", tree, re.MULTILINE):
        parents = [*parents[: len(indent) // 4], folder]
        named.append("/".join(parents))
    there = {file.parent.relative_to(PACKAGE.parent) for file in PACKAGE.rglob("*") if file.suffix in (".py", ".yaml")}
    assert sorted(named) == sorted(map(str, there))
