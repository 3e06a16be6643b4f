# SPDX-License-Identifier: GPL-2.0-only
"""Text of docstrings and help as Markdown, and the parts that pages are made of."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WIDTH = 120

_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_NOT_FIRST = re.compile(r" (?=(?:[-+*#>=|]|\d+[.)])(?: |$))")
"""What would begin a list, a heading or a quotation at the beginning of a line."""


class Undescribed(Exception):
    """Something public has no description in the code."""


def described(thing: object, name: str) -> str:
    """The docstring of something public, without its indentation. Raises Undescribed where there is none."""
    text = inspect.getdoc(thing)
    if not text:
        raise Undescribed(f"{name} has no docstring")
    return text


def inline(text: str) -> str:
    """Text as one line of Markdown: ``code`` as `code`, and no other character with a meaning of Markdown's."""
    text = " ".join(text.split())
    parts: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        parts += [_escaped(text[end : code.start()]), f"`{code[2]}`"]
        end = code.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return re.sub(r"([*<\[\]]|(?<![A-Za-z0-9])_)", r"\\\1", text)


def filled(text: str, *, first: str = "") -> str:
    """Markdown in lines of at most ``WIDTH``, with ``first`` before it and the other lines below its text."""
    kept = _NOT_FIRST.sub("\0", " ".join(text.split()))
    lines = textwrap.fill(
        kept, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return lines.replace("\0", " ")


def prose(text: str) -> str:
    """The paragraphs of a docstring as Markdown. Lines that are indented are code, as they are."""
    blocks: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines = paragraph.splitlines()
        if all(line.startswith((" ", "\t")) for line in lines):
            blocks.append(fenced(textwrap.dedent(paragraph), "text"))
        else:
            blocks.append(filled(inline(paragraph)))
    return "\n\n".join(blocks)


def first_sentence(text: str) -> str:
    """The first sentence of a docstring, which may have two lines."""
    return re.split(r"(?<=\.) ", " ".join(text.split()))[0]


def fenced(code: str, language: str) -> str:
    """A block of code."""
    return f"```{language}\n{code.rstrip()}\n```"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; an entry's ``|`` does not end it."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(entry.replace("|", r"\|") for entry in row) + " |" for row in lines)


def anchor(heading: str) -> str:
    """A heading, as links name it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def link(heading: str) -> str:
    """A link to a heading of the same page."""
    return f"[{heading}](#{anchor(heading)})"


def listed(words: Iterable[str]) -> str:
    """Words as code, one behind the other."""
    return ", ".join(f"`{word}`" for word in words)


def page(title: str, parts: Iterable[str]) -> str:
    """A page: its title, and parts of it with an empty line between."""
    note = "<!-- Written by `python -m docs.reference_pages`: change the code, not this page. -->"
    return "\n\n".join([f"# {title}", note, *parts]) + "\n"
