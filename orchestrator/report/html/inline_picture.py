# SPDX-License-Identifier: GPL-2.0-only
"""A drawn picture as a part of a page: its colours follow the page's theme, and its ids are the page's own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # the pictures are this program's own
from collections.abc import Container, Iterator

from markupsafe import Markup

from orchestrator.report.palette import INK, LINE, PAPER, QUIET_INK

_CLASSES = {INK: "ink", QUIET_INK: "quiet", LINE: "line", PAPER: "paper"}
_LOCAL = re.compile(r"url\(#([^)]+)\)")
_REFERENCE = re.compile(r'(?:url\(|href=")#([^)"]+)')
_FONT = re.compile(r"(?:(bold|\d+) )?([\d.]+px) (.+)")


def inline_picture(svg: str, name: str, title: str, description: str) -> Markup:
    """Return ``svg`` as an element of a page, which screen readers announce as an image with a title.

    ``name`` begins all its ids. Its style attributes become attributes of their own, since the page's content security
    policy forbids inline styles.
    """
    root = ET.fromstring(svg)  # noqa: S314
    referred = set(_REFERENCE.findall(svg))
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = dict(_attributes(element, name, referred))
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None if element.tail is None or not element.tail.strip() else element.tail
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {
        "class": "picture",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-description",
        "stroke-linejoin": "round",
    }
    # A screen reader reads the title and the description, not each label of an axis.
    for position, (tag, text) in enumerate([("title", title), ("desc", description)]):
        element = ET.Element(tag, {"id": f"{name}-{'title' if tag == 'title' else 'description'}"})
        element.text = text
        root.insert(position, element)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704


def _attributes(element: ET.Element, name: str, referred: Container[str]) -> Iterator[tuple[str, str]]:
    declared = dict(_declarations(element.attrib.get("style", "")))
    classes = []
    for key, value in {**element.attrib, **declared}.items():
        key, value = _local(key), value.strip()
        if key in ("style", "type", "font-family") or (key == "id" and value not in referred):
            continue
        if key in ("fill", "stroke") and value.lower() in _CLASSES:
            classes.append(f"{key}-{_CLASSES[value.lower()]}")
        elif key == "id":
            yield key, f"{name}-{value}"
        elif key == "href":
            yield key, f"#{name}-{value.removeprefix('#')}"
        else:
            yield key, _LOCAL.sub(rf"url(#{name}-\1)", value)
    if _local(element.tag) == "text" and "fill" not in declared and "fill" not in element.attrib:
        classes.append("fill-ink")
    if classes:
        yield "class", " ".join(classes)


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    for declaration in style.split(";"):
        key, colon, value = declaration.partition(":")
        if not colon:
            continue
        key, value = key.strip(), value.strip()
        font = _FONT.fullmatch(value) if key == "font" else None
        if font is None:
            yield key, value
            continue
        yield "font-size", font[2]
        if font[1]:
            yield "font-weight", font[1]


def _local(name: object) -> str:
    """A name without its namespace."""
    return str(name).rpartition("}")[2]
