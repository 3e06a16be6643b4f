# SPDX-License-Identifier: GPL-2.0-only
"""The frame of all pages, what a page carries with it, and how pages become files.

A page needs nothing from outside. Its content security policy allows its own style and script, by their digests, and
nothing else, so that text from a guest cannot do anything even where escaping it was forgotten.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from orchestrator import __version__
from orchestrator.errors import LabError
from orchestrator.files import write_whole
from orchestrator.results.faults import storage_faults
from orchestrator.results.run_files import KeptFile

_FOLDERS = ("html", "site")
_MARK = re.compile(r"(?<= )\[(\d{1,4})\]")
"""As ``report.footnotes`` sets it behind a figure."""


@dataclass(frozen=True)
class Link:
    """An entry of the navigation: ``target`` is a fragment, ``#tables``, or another page's relative address."""

    target: str
    text: str


def render(template: str, title: str, links: Sequence[Link], **content: object) -> str:
    """Return the page that ``template`` makes of ``content``.

    The template is of this folder or of ``report/site``, and extends ``frame.html.j2``.
    """
    style, script = _resource("page.css"), _resource("page.js")
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'; "
        "form-action 'none'"
    )
    page = _environment().get_template(template)
    return page.render(
        title=title,
        links=links,
        policy=policy,
        # Both are files of this package, and neither contains the end of its element.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        version=__version__,
        **content,
    )


def part(template: str, **content: object) -> Markup:
    """Return what ``template`` of this folder makes of ``content``, as a part of a page."""
    return Markup(_environment().get_template(template).render(**content))  # noqa: S704 (it escapes)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(f"orchestrator.report.{name}", "") for name in _FOLDERS]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["marks"] = _with_marks
    return environment


def _with_marks(text: str, table: str) -> Markup:
    """A cell's text; a footnote's mark, ``[1]``, leads to the note of the table with this id."""
    target = Markup('<a href="#{}-note-{}">[{}]</a>')
    parts = _MARK.split(text)
    return Markup().join(target.format(table, part, part) if index % 2 else part for index, part in enumerate(parts))


@cache
def _resource(name: str) -> str:
    return files("orchestrator.report.html").joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    """A source of a content security policy that allows an inline element with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@dataclass(frozen=True)
class Attachment:
    """A text of a run; ``id`` is the element's, ``title`` says what it is."""

    id: str
    title: str
    file: KeptFile

    @property
    def encoded(self) -> str:
        """Its gzip as base64, as the page's script expands it; without the time of day, equal runs are equal pages."""
        return base64.b64encode(gzip.compress(self.file.content, mtime=0)).decode()

    @property
    def name(self) -> str:
        return f"{re.sub('[^A-Za-z0-9._+-]', '_', self.file.path)}.txt"


@dataclass(frozen=True)
class Beside:
    """A folder beside the page: what is put there becomes a file, and the page has a relative link."""

    folder: str
    files: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, content: bytes) -> str:
        unused, number = name, 1
        while self.files.get(unused, content) != content:
            number += 1
            stem, dot, suffix = name.rpartition(".")
            unused = f"{stem}-{number}{dot}{suffix}"
        self.files[unused] = content
        return f"{self.folder}/{unused}"


@dataclass(frozen=True)
class Page:
    """A page's text, and the files beside it by their names in ``folder``; both are to be written together."""

    text: str
    folder: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


PAGE = "report.html"
"""The page in a run's own directory."""
COMPARISON_PAGE = "comparison.html"
"""The page of the last comparison of a run with one before it, there too."""


def beside(file: Path) -> str:
    """The name of the folder for what does not fit into the page ``file``."""
    return f"{file.name}.files"


def write_page(page: Page, file: Path) -> None:
    """Write a page, and the files beside it first.

    Raises HostError when the disk is full or not writable, LabError where a link leads the files elsewhere.
    """
    with storage_faults(file):
        if page.files:
            folder = file.parent / page.folder
            if folder.is_symlink():
                raise LabError("this link is in the place of a page's folder", where=str(folder), hint="remove it")
            folder.mkdir(exist_ok=True)
            for name, content in page.files.items():
                write_whole(folder / name, content)
        write_whole(file, page.text)
