# SPDX-License-Identifier: GPL-2.0-only
"""The pages of what kmods/ has for modules of a user's own: djprobe, jprobe, markers."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from .kernel_doc import Documented, documented, exported, first_comment
from .markdown import ROOT, Undescribed, fenced, filled, table
from .markdown import page as whole_page

_KMODS = ROOT / "kmods"
_CODE = re.compile(
    r"[%@&](?P<marked>\w+(?:\(\))?)|\b(?P<call>\w+\(\))|(?P<number>-E[A-Z]+)\b|\b(?P<constant>NULL)\b"
    r"|\b(?P<name>[a-z]+_\w+)\b"
)
_BUILD = """`make -C kmods KDIR=BUILD_TREE` builds {module}.ko, which exports these functions.
[kmods/README.md](../../kmods/README.md#with-make-alone) says how a module elsewhere is built with it. A template or a C
file that `./lab kmod build` builds needs only the `#include`: it gets the implementation within it."""


def djprobe() -> str:
    """``struct djprobe`` and its functions."""
    example = (_KMODS / "example" / "djprobe_example.c").read_text()
    closing = ["## Example", fenced(example.partition("*/\n")[2].lstrip("\n"), "c")]
    return _page(
        "djprobe", closing, more="[djprobe in modules of your own](../probes.md#djprobe-in-modules-of-your-own)"
    )


def jprobe() -> str:
    """``struct jprobe`` and its functions."""
    return _page("jprobe", [], more="[Mechanisms](../mechanisms.md)")


def marker() -> str:
    """``MARK()``, and what connects a probe to markers."""
    return _page("marker", [], more="[Markers in modules of your own](../probes.md#markers-in-modules-of-your-own)")


def _page(family: str, closing: Sequence[str], *, more: str) -> str:
    folder = _KMODS / family
    found = {one.name: one for file in _sources(folder) for one in documented(file.read_text())}
    missing = [name for name in exported((folder / f"{family}_module.c").read_text()) if name not in found]
    if missing:
        raise Undescribed(f"{folder.relative_to(ROOT)}: {missing[0]}() is exported and has no kernel-doc comment")
    for one in found.values():
        if one.undescribed:
            names = ", ".join(sorted(one.undescribed))
            raise Undescribed(f"{folder.relative_to(ROOT)}: the comment of {one.name} does not describe {names}")
    parts = [
        fenced(f'#include "{family}.h"', "c"),
        *_overview(first_comment((folder / f"{family}.h").read_text())),
        filled(_BUILD.format(module=family)),
        f"More: {more}.",
    ]
    for one in sorted(found.values(), key=lambda one: one.kind == "function"):
        parts += _section(one)
    return whole_page(f"{family}.h", [*parts, *closing])


def _sources(folder: Path) -> Iterator[Path]:
    """The header, then the sources: comments stand where a function is declared or where it is defined."""
    header = folder / f"{folder.name}.h"
    return iter([header, *sorted(set(folder.glob("*.[ch]")) - {header})])


def _overview(comment: str) -> Iterator[str]:
    """A file's first comment. Lines that are indented by a tab are code."""
    for paragraph in comment.split("\n\n"):
        if paragraph.startswith("\t"):
            yield fenced(textwrap.dedent(paragraph), "c")
        else:
            yield from _prose(paragraph)


def _section(one: Documented) -> Iterator[str]:
    yield f"## {one.kind} {one.name}" if one.kind != "function" else f"## {one.name}()"
    yield filled(_sentence(one.purpose))
    yield fenced(one.declaration, "c")
    if one.parameters:
        head = ("parameter", "what") if one.kind == "function" else ("member", "what")
        yield table(head, [(f"`{name}`", _sentence(text)) for name, text in one.parameters.items()])
    yield from _prose(one.description)
    for name, text in one.sections.items():
        opening, *lists = list(_prose(f"{_TITLES[name]} {text}"))
        yield opening
        yield from lists


_TITLES = {"Context": "**Context:**", "Return": "**Returns:**", "Note": "**Note:**"}


def _prose(text: str) -> Iterator[str]:
    """Paragraphs and lists of kernel-doc as Markdown."""
    for paragraph in filter(None, text.split("\n\n")):
        items = re.split(r"^\* ", paragraph, flags=re.MULTILINE)
        if items[0].strip():
            yield filled(_inline(items[0]))
        if items[1:]:
            yield "\n".join(filled(_inline(item), first="- ") for item in items[1:])


def _inline(text: str) -> str:
    """One line, in which what is C's is set as code."""
    return _CODE.sub(lambda found: f"`{next(filter(None, found.groups()))}`", " ".join(text.split()))


def _sentence(text: str) -> str:
    line = _inline(text)
    return line[0].upper() + line[1:] + ("" if line.endswith(".") else ".")
