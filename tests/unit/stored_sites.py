# SPDX-License-Identifier: GPL-2.0-only
"""Sites of small labs, and what is in their pages."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

from html_checks import Element, check_page
from record_builders import cell
from stored_histories import EXPERIMENT, broken, counted, store_days

from orchestrator.benchmarks.registry import reports
from orchestrator.pages.site.building import SiteBuilt, build_site
from orchestrator.results.store import Store

DAYS = [counted(1036), counted(1036), counted(1050), broken(), counted(1050), counted(1049)]
KERNELS = {2: "6.1.176-1"}
"""Two steps: at the first the kernel was another, at the second nothing."""


def six_days(lab: Path) -> list[str]:
    """Store the runs of six days, and return their ids, which depend on nothing else."""
    numbers = iter(range(100))
    with patch("orchestrator.results.store.secrets.token_hex", lambda _: f"{next(numbers):04x}"):
        return store_days(lab, DAYS, KERNELS)


def one_more_day(lab: Path) -> str:
    """Store a further run, which is not finished yet: its baseline is measured, its kprobe is not."""
    with Store.open(lab) as store:
        ids = [cell("none").id, counted(1049).id]
        entry = store.begin_run(EXPERIMENT, ids, digest="1", provenance={"qemu": "7.2"})
        store.record(entry.id, cell("none"))
    return entry.id


def site_of(lab: Path, directory: Path, most_runs: int | None = None) -> SiteBuilt:
    """Build the lab's site."""
    with Store.open(lab) as store:
        return build_site(store, directory, reports(), most_runs)


def files(directory: Path) -> Mapping[str, str]:
    """The files of a site by their paths, with their texts; what is no page is left out."""
    found = sorted(file for file in directory.rglob("*") if file.is_file())
    paths = {file.relative_to(directory).as_posix(): file for file in found}
    return {path: file.read_text("utf-8") for path, file in paths.items() if not path.startswith(".site/")}


def written(directory: Path) -> Mapping[str, int]:
    """When each file of a site was written, in nanoseconds."""
    return {path: (directory / path).stat().st_mtime_ns for path in files(directory)}


def checked(directory: Path) -> Mapping[str, Element]:
    """The pages as trees. Fails for a page that ``check_page`` refuses, and for a link that leads nowhere."""
    texts = files(directory)
    pages = {path: check_page(text) for path, text in texts.items() if path.endswith(".html")}
    ids = {path: {element.attributes.get("id") for element in elements(page)} for path, page in pages.items()}
    for path, page in pages.items():
        for link in page.all("a"):
            target, _, fragment = link.attributes["href"].partition("#")
            leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            assert leads_to in texts, f"{path} leads to {leads_to}"
            assert not fragment or fragment in ids[leads_to], f"{path} leads to {leads_to}#{fragment}"
    return pages


def elements(element: Element) -> Iterator[Element]:
    """An element and all in it."""
    yield element
    for child in element.children:
        yield from elements(child)


def outline(element: Element) -> Iterator[str]:
    """What a page says, in lines: headings, paragraphs, rows of tables; links with their targets."""
    tag = element.tag
    if tag in ("style", "script", "footer", "form", "title") or element.attributes.get("class") == "skip":
        return
    if tag in ("h1", "h2", "h3", "p", "li", "pre", "summary", "caption", "desc"):
        yield f"{tag}: {_with_links(element)}"
    elif tag == "tr":
        yield "| " + " | ".join(_with_links(one) for one in element.children)
    else:
        for child in element.children:
            yield from outline(child)


def _with_links(element: Element) -> str:
    targets = [link.attributes["href"] for link in element.all("a")]
    return " ".join(element.whole_text.split()) + "".join(f" <{target}>" for target in targets)
