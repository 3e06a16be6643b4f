# SPDX-License-Identifier: GPL-2.0-only
"""What holds for every page, checked without a browser."""

from __future__ import annotations

import base64
import gzip
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "input", "br", "hr", "img", "link", "path", "use", "rect"}
EXTERNAL = re.compile(r"^\s*([a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)


@dataclass
class Element:
    """An element with its attributes, and the texts and elements directly in it in their order."""

    tag: str
    attributes: dict[str, str]
    content: list[Element | str] = field(default_factory=list)

    @property
    def children(self) -> list[Element]:
        """The elements directly in it."""
        return [element for element in self.content if isinstance(element, Element)]

    @property
    def text(self) -> str:
        """Its own text."""
        return "".join(element for element in self.content if isinstance(element, str))

    def all(self, tag: str) -> list[Element]:
        """Every element of this tag in it, at any depth."""
        elements = [child for child in self.children if child.tag == tag]
        return elements + [inner for child in self.children for inner in child.all(tag)]

    @property
    def whole_text(self) -> str:
        """Its text and that of all in it."""
        return "".join(element if isinstance(element, str) else element.whole_text for element in self.content)


class _Tree(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        assert len(element.attributes) == len(attrs), f"an attribute of {tag} is there twice"
        self.open[-1].content.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop().tag == tag, f"</{tag}> ends another element"

    def handle_data(self, data: str) -> None:
        self.open[-1].content.append(data)


def parsed(page: str) -> Element:
    """The page as a tree. Fails where elements are not nested."""
    tree = _Tree()
    tree.feed(page)
    tree.close()
    assert len(tree.open) == 1
    return tree.root


def check_page(page: str) -> Element:
    """Fail unless ids are unique, fragments lead somewhere, nothing is external, tables are described; the tree."""
    root = parsed(page)
    elements = _every(root)
    ids = [one.attributes["id"] for one in elements if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    for element in elements:
        assert "style" not in element.attributes, "the policy forbids inline styles"
        assert not any(name.startswith("on") for name in element.attributes)
        for name, value in element.attributes.items():
            if name in ("href", "src", "action", "xlink:href", "data", "poster"):
                assert not EXTERNAL.match(value), value
            if name == "href" and value.startswith("#"):
                assert value[1:] in ids, value
            if name in ("aria-labelledby", "aria-describedby"):
                assert set(value.split()) <= set(ids), value
            assert all(target in ids for target in re.findall(r"url\(#([^)]+)\)", value))
    for table in root.all("table"):
        assert table.all("caption")[0].whole_text.strip()
        assert all(heading.attributes["scope"] in ("row", "col") for heading in table.all("th"))
        assert all(heading.whole_text.strip() for heading in table.all("th"))
    assert all(one.attributes["role"] == "img" and one.all("title") for one in root.all("svg"))
    policy = next(one for one in root.all("meta") if one.attributes.get("http-equiv") == "Content-Security-Policy")
    assert policy.attributes["content"].startswith("default-src 'none'; ")
    assert "unsafe" not in policy.attributes["content"]
    return root


def attachment(page: str, title: str) -> str:
    """The text of the attachment whose title begins so."""
    root = parsed(page)
    for element in root.all("details"):
        if "data-packed" in element.attributes and element.all("summary")[0].whole_text.startswith(title):
            wanted = element.attributes["data-packed"]
            template = next(
                other_element for other_element in root.all("template") if other_element.attributes["id"] == wanted
            )
            return gzip.decompress(base64.b64decode(template.text, validate=True)).decode()
    raise AssertionError(f"no attachment is called {title}")


def _every(element: Element) -> list[Element]:
    return [element, *(inner for child in element.children for inner in _every(child))]
