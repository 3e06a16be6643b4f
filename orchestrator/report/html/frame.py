# SPDX-License-Identifier: GPL-2.0-only
"""The frame of all pages, their attachments, and writing them to files.

A page needs no network. Its content security policy allows only its own style and script, by their digests, so that
text from a guest is harmless even if its escaping was forgotten.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from orchestrator.errors import LabError
from orchestrator.files import write_whole
from orchestrator.results.faults import storage_faults
from orchestrator.results.run_files import KeptFile
from orchestrator.version import __version__

_TEMPLATES = ("orchestrator.report.html", "orchestrator.pages", "orchestrator.pages.site")
_MARK = re.compile(r"(?<= )\[(\d{1,4})\]")
"""A footnote's mark after a figure."""


@dataclass(frozen=True)
class NavigationLink:
    """A navigation entry: ``target`` is a fragment, ``#tables``, or another page's relative address."""

    target: str
    text: str


def render(template: str, title: str, links: Sequence[NavigationLink], **content: object) -> str:
    """Render a page from a template of this folder or of ``pages``, which extends ``frame.html.j2``."""
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
        # Both are files of this package without the end tag of their element.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        version=__version__,
        **content,
    )


def part(template: str, **content: object) -> Markup:
    """Render a part of a page."""
    return Markup(_environment().get_template(template).render(**content))  # noqa: S704 (it escapes)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package, "") for package in _TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["marks"] = _with_marks
    return environment


def _with_marks(text: str, table: str) -> Markup:
    """A cell's text with its footnote marks, ``[1]``, as links to the notes of the table with this id."""
    target = Markup('<a href="#{}-note-{}">[{}]</a>')
    parts = _MARK.split(text)
    return Markup().join(target.format(table, part, part) if index % 2 else part for index, part in enumerate(parts))


@cache
def _resource(name: str) -> str:
    return files("orchestrator.report.html").joinpath(name).read_text("utf-8")


def _digest(text: str) -> str:
    """The source in a content security policy that allows an inline element with this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@dataclass(frozen=True)
class AttachedFile:
    """A text file of a run in a page, with the element's ``id`` and a ``title``."""

    id: str
    title: str
    file: KeptFile

    @property
    def encoded(self) -> str:
        """Its gzip as base64, for the page's script; without a time, so that equal runs give equal pages."""
        return base64.b64encode(gzip.compress(self.file.content, mtime=0)).decode()

    @property
    def name(self) -> str:
        return f"{re.sub('[^A-Za-z0-9._+-]', '_', self.file.path)}.txt"


@dataclass(frozen=True)
class Page:
    """A page's text, and its other files by their names in ``folder``, which is next to it."""

    text: str
    folder: str = ""
    files: dict[str, bytes] = field(default_factory=dict)

    def put(self, name: str, content: bytes) -> str:
        """Add a large file, and return the relative link to it."""
        unused, number = name, 1
        while self.files.get(unused, content) != content:
            number += 1
            stem, dot, suffix = name.rpartition(".")
            unused = f"{stem}-{number}{dot}{suffix}"
        self.files[unused] = content
        return f"{self.folder}/{unused}"


PAGE = "report.html"
"""The page in a run's directory."""
COMPARISON_PAGE = "comparison.html"
"""The page of a run's last comparison, in its directory."""


def page_folder(file: Path) -> str:
    """The name of the folder for the large files of the page ``file``."""
    return f"{file.name}.files"


def write_page(page: Page, file: Path) -> None:
    """Write a page after its other files.

    Raises HostError if the disk is full or not writable, LabError if the folder is a symbolic link.
    """
    with storage_faults(file):
        if page.files:
            folder = file.parent / page.folder
            if folder.is_symlink():
                raise LabError("the page's folder is a symbolic link", where=str(folder), hint="remove it")
            folder.mkdir(exist_ok=True)
            for name, content in page.files.items():
                write_whole(folder / name, content)
        write_whole(file, page.text)
