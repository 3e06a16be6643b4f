# SPDX-License-Identifier: GPL-2.0-only
"""Comments of C: kernel-doc (``/** ... */``) with the declaration below it, and a file's first comment.

What is understood: a purpose, ``@parameter:`` texts, paragraphs, lists of ``*``, and the sections ``Context:`` and
``Return:``. https://docs.kernel.org/doc-guide/kernel-doc.html has the whole format.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_COMMENT = re.compile(r"^/\*\*\n(?P<text>.*?)\*/\n", re.DOTALL | re.MULTILINE)
_MACRO = re.compile(r"#define (?P<call>\w+(?:\([^)]*\))?)")
_POINTER = re.compile(r"\(\*(?P<name>\w+)\)\([^)]*\)")
"""Of a member that points to a function: its name, and the parameters, which are not the struct's."""
_TITLE = re.compile(r"(?:(?P<kind>struct|union|enum|typedef) )?(?P<name>\w+)(?P<call>\(\))? - (?P<purpose>.+)")
_PARAMETER = re.compile(r"@(?P<name>\w+|\.\.\.):(?P<text>.*)")
_SECTION = re.compile(r"(?P<name>Context|Return|Note):(?P<text>.*)")
_FIRST = re.compile(r"\A(?:/\*.*?\*/|//[^\n]*)\n/\*\n(?P<text>.*?)\*/", re.DOTALL)
_EXPORT = re.compile(r"(?P<comment>\*/\n)?EXPORT_SYMBOL_GPL\((?P<name>\w+)\);")


class Malformed(ValueError):
    """A kernel-doc comment that is none."""


@dataclass(frozen=True)
class Documented:
    """A declaration with its comment. ``kind`` is ``function``, or the C word; texts keep their line breaks."""

    name: str
    kind: str
    purpose: str
    declaration: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    sections: Mapping[str, str] = field(default_factory=dict)

    @property
    def undescribed(self) -> set[str]:
        """The parameters or members of the declaration that the comment does not describe."""
        if self.kind == "enum":
            return set(re.findall(r"^\t(\w+)", self.declaration, re.MULTILINE)) - self.parameters.keys()
        inside = self.declaration.partition("(")[2]
        if self.kind == "struct":
            inside = _POINTER.sub(r"\g<name>", self.declaration)
        names = re.findall(r"(\w+)\s*(?:\[\w*\])?\s*[,);]", inside)
        return {name for name in names if name != "void"} - self.parameters.keys()


def documented(source: str) -> Sequence[Documented]:
    """All that has a kernel-doc comment, in order. Raises Malformed."""
    return [_documented(_lines(match["text"]), source[match.end() :]) for match in _COMMENT.finditer(source)]


def first_comment(source: str) -> str:
    """What a file says of itself: the comment below its licence, empty where there is none."""
    match = _FIRST.match(source)
    return "" if match is None else textwrap.dedent("\n".join(_lines(match["text"]))).strip("\n")


def exported(source: str) -> Sequence[str]:
    """The functions that a module exports for others' code: those whose export has no comment of its own."""
    return [match["name"] for match in _EXPORT.finditer(source) if not match["comment"]]


def _lines(text: str) -> list[str]:
    """A comment's lines without their asterisks; what is behind keeps its indentation."""
    return [re.sub(r"^ ?\* ?", "", line.rstrip()) for line in text.splitlines()]


def _documented(lines: Sequence[str], code: str) -> Documented:
    title = _TITLE.fullmatch(lines[0].strip()) if lines else None
    if title is None:
        raise Malformed(f"found {lines[:1]}; expected NAME() - PURPOSE, or struct NAME - PURPOSE")
    parameters: dict[str, list[str]] = {}
    sections: dict[str, list[str]] = {}
    description: list[str] = []
    current = description
    for line in lines[1:]:
        parameter, section = _PARAMETER.fullmatch(line), _SECTION.fullmatch(line)
        if parameter is not None:
            current = parameters[parameter["name"]] = [parameter["text"]]
        elif section is not None:
            current = sections[section["name"]] = [section["text"]]
        elif not line and any(current is text for text in parameters.values()):
            current = description  # a parameter has one paragraph
        else:
            current.append(line)
    kind = title["kind"] or "function"
    if kind == "function" and not title["call"]:
        raise Malformed(f"{title['name']}: a function or a macro is written with ()")
    return Documented(
        title["name"],
        kind,
        title["purpose"],
        _declaration(kind, code),
        {name: _joined(text) for name, text in parameters.items()},
        _joined(description),
        {name: _joined(text) for name, text in sections.items()},
    )


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(line.strip() for line in lines).strip()


def _declaration(kind: str, code: str) -> str:
    """A declaration alone: of a function without its body, of a macro without what it stands for."""
    macro = _MACRO.match(code)
    if macro is not None:
        return macro["call"]
    if kind in ("struct", "union", "enum"):
        return code.partition("\n};")[0] + "\n};"
    declared = " ".join(re.split(r"\s*[{;]", code, maxsplit=1)[0].split())
    return re.sub(r" __attribute__\(\(\w+\)\)", "", declared) + ";"
