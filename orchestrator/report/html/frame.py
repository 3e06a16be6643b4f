# SPDX-License-Identifier: GPL-2.0-only
"""The frame of all pages: head, style, script, navigation and footer, around a template's content.

A page needs nothing from outside. Its content security policy allows its own style and script, by their digests, and
nothing else, so that text from a guest cannot do anything even where escaping it was forgotten.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import jinja2
from markupsafe import Markup

from orchestrator import __version__

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
