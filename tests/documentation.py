# SPDX-License-Identifier: GPL-2.0-only
"""The blocks of the README and of docs/, and the comments before a block that make tests use it.

<!-- runnable -->               each line is a ./lab command that succeeds; no guest is booted
<!-- runnable in a guest -->    the same, with a guest
<!-- output -->                 what the runnable block before it prints; a last line "..." stands for more
<!-- file: NAME -->             a file that the page's commands and experiments find beside them
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WITHOUT_GUEST = "runnable"
WITH_GUEST = "runnable in a guest"
MORE = "..."

_OWN = re.compile(r"\./([\w-]+\.(?:c|c\.j2|ko))\b")
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def _is_no_operator(word: str) -> bool:
    """Whether a word is the command's own, and not a shell's: a pipe, a list, a redirection."""
    return word not in ("|", "||", "&&") and not word.startswith((">", "2>"))


@dataclass(frozen=True)
class Block:
    """A fenced block: its page, its first line's number, its language, the comment before it (or ""), its text."""

    page: Path
    line: int
    language: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"

    def commands(self) -> list[list[str]]:
        """The arguments of each ``./lab`` in a block for a shell. Comments go, and so does what a shell would do."""
        lines = self.text.replace("\\\n", " ").splitlines()
        words = [shlex.split(line, comments=True) for line in lines if line.startswith("./lab ")]
        return [list(takewhile(_is_no_operator, command[1:])) for command in words]


@dataclass(frozen=True)
class Example:
    """A runnable block, and what it must print where the page shows that."""

    block: Block
    output: str | None

    def __str__(self) -> str:
        return str(self.block)

    def commands(self) -> list[list[str]]:
        """The commands to run: not ``./lab test``, which is running already."""
        return [command for command in self.block.commands() if command[0] != "test"]


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start("text")) + 1, match["language"], match["mark"] or "", match["text"])
        for match in _BLOCK.finditer(text)
    ]


def all_blocks() -> list[Block]:
    """All fenced blocks of all pages."""
    return [block for page in PAGES for block in blocks(page)]


def examples(mark: str) -> list[Example]:
    """The runnable blocks with this mark, of all pages."""
    found = []
    for page in PAGES:
        of_page = blocks(page)
        for number, block in enumerate(of_page):
            if block.mark == mark:
                output = [
                    following.text for following in of_page[number + 1 : number + 2] if following.mark == "output"
                ]
                found.append(Example(block, output[0] if output else None))
    return found


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows, and link the lab's own experiments beside them.

    A module that an experiment only names, as ``./mine.c``, is an empty file.
    """
    for block in blocks(page):
        if block.mark.startswith("file: "):
            file = folder / block.mark.removeprefix("file: ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        for name in _OWN.findall(block.text if block.language == "yaml" else ""):
            (folder / name).touch()
    (folder / "configs").symlink_to(ROOT / "configs")


def check_output(example: Example, printed: str) -> None:
    """Compare what a runnable block printed with what the page shows."""
    if example.output is None:
        return
    shown = [line.rstrip() for line in example.output.splitlines()]
    lines = [line.rstrip() for line in printed.splitlines()]
    if shown[-1] == MORE:
        shown.pop()
        lines = lines[: len(shown)]
    assert lines == shown
