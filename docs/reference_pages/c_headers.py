# SPDX-License-Identifier: GPL-2.0-only
"""The pages of headers for a user's own C: modules with djprobe, jprobe, markers and reports, and workloads."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
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
file that `./lab build module` builds needs only the `#include`: it gets the implementation within it."""


_WITHIN = """A template or a C file that `./lab run`, `exec` or `kmod build` builds needs only the `#include`: it gets
the implementation within it. `make -C kmods` builds no module of it."""


def djprobe() -> str:
    """``struct djprobe`` and its functions."""
    more = "[djprobe in modules of your own](../probes.md#djprobe-in-modules-of-your-own)"
    return _family("djprobe", _example("djprobe"), more=more)


def jprobe() -> str:
    """``struct jprobe`` and its functions."""
    return _family("jprobe", [], more="[Mechanisms](../mechanisms.md)")


def marker() -> str:
    """``MARK()``, and what connects a probe to markers."""
    more = "[Markers in modules of your own](../probes.md#markers-in-modules-of-your-own)"
    return _family("marker", _example("marker"), more=more)


def report() -> str:
    """What a module reports of its probe."""
    return _shared("report", "report_life")


def ring() -> str:
    """What a recording handler calls."""
    return _shared("ring")


def point() -> str:
    """The parameters that say where a probe goes."""
    return _shared("point")


def workload() -> str:
    """What a workload of C defines, and the functions that it has; the example is a call of the table of calls."""
    guest = ROOT / "images" / "guest"
    header = ROOT / "images" / "workload" / "workload.h"
    more = "More: [Calls](../experiments.md#calls), with `file:` and `hits:`."
    example = guest / "calls" / "epoll.c"
    code = example.read_text().partition("\n")[2]
    return _page(header, _documented([header, guest / "runtime.h"]), [more], ["## Example", fenced(code, "c")])


def _family(family: str, closing: Sequence[str], *, more: str) -> str:
    folder = _KMODS / family
    comments = _documented(_sources(folder))
    names = {comment.name for comment in comments}
    missing = [name for name in exported((folder / f"{family}_module.c").read_text()) if name not in names]
    if missing:
        raise Undescribed(f"{folder.relative_to(ROOT)}: {missing[0]}() is exported and has no kernel-doc comment")
    return _page(folder / f"{family}.h", comments, [filled(_BUILD.format(module=family)), f"More: {more}."], closing)


def _shared(name: str, *more_names: str) -> str:
    """The page of a header of ``lib``, with what ``others`` declare that it includes."""
    headers = [_KMODS / "lib" / f"{header}.h" for header in (name, *more_names)]
    more = "More: [A module of your own](../modules.md)."
    return _page(headers[0], _documented(headers), [filled(_WITHIN), more], [])


def _documented(files: Iterable[Path]) -> Sequence[Documented]:
    comments = {}
    for file in files:
        for comment in documented(file.read_text()):
            if comment.undescribed:
                names = ", ".join(sorted(comment.undescribed))
                raise Undescribed(f"{file.relative_to(ROOT)}: the comment of {comment.name} does not describe {names}")
            comments[comment.name] = comment
    return list(comments.values())


def _page(header: Path, comments: Sequence[Documented], use: Sequence[str], closing: Sequence[str]) -> str:
    parts = [fenced(f'#include "{header.name}"', "c"), *_overview(first_comment(header.read_text())), *use]
    for comment in sorted(comments, key=lambda comment: comment.kind == "function"):
        parts += _section(comment)
    return whole_page(header.name, [*parts, *closing])


def _example(family: str) -> Sequence[str]:
    """What a module of ``example`` says of itself, and its code."""
    source = (_KMODS / "example" / f"{family}_example.c").read_text()
    code = source.partition("*/\n")[2].lstrip("\n")
    return ["## Example", *_overview(first_comment(source)), fenced(code, "c")]


def _sources(folder: Path) -> Iterator[Path]:
    """The header, then the sources: comments stand where a function is declared or where it is defined."""
    header = folder / f"{folder.name}.h"
    return iter([header, *sorted(set(folder.glob("*.[ch]")) - {header})])


def _overview(comment: str) -> Iterator[str]:
    """A file's first comment. Lines that are indented by a tab are C, what a shell is told behind ``$``, or a text."""
    for paragraph in comment.split("\n\n"):
        if paragraph.startswith("\t"):
            code = textwrap.dedent(paragraph)
            told = re.sub(r"^\$ ", "", code, flags=re.MULTILINE)
            yield fenced(told, "sh" if told != code else "c" if ";" in code else "text")
        else:
            yield from _prose(paragraph)


def _section(comment: Documented) -> Iterator[str]:
    yield f"## {comment.kind} {comment.name}" if comment.kind != "function" else f"## {comment.name}()"
    yield filled(_sentence(comment.purpose))
    yield fenced(comment.declaration, "c")
    if comment.parameters:
        head = ("parameter", "what") if comment.kind == "function" else ("member", "what")
        yield table(head, [(f"`{name}`", _sentence(text)) for name, text in comment.parameters.items()])
    yield from _prose(comment.description)
    for name, text in comment.sections.items():
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
    return _CODE.sub(lambda match: f"`{next(filter(None, match.groups()))}`", " ".join(text.split()))


def _sentence(text: str) -> str:
    line = _inline(text)
    return line[0].upper() + line[1:] + ("" if line.endswith(".") else ".")
