# SPDX-License-Identifier: GPL-2.0-only
"""Bytes that a marker adds to an object, beside the document's of 2006."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from orchestrator.benchmarks.markers.codesize.marker_code import paths
from orchestrator.benchmarks.markers.codesize.marker_size import UNMARKED, MarkerSize, marker_sizes, probe_listing
from orchestrator.benchmarks.markers.codesize.object_file import ObjectFile
from orchestrator.benchmarks.markers.rows import marker_benchmarks
from orchestrator.report.grid import Grid, Row

_WIDTH = 80


def size_lines(found: ObjectFile, kernel: str) -> Iterator[Text | str]:
    """Yield the table's lines. Raises EvidenceError for an object without the document's functions and markers."""
    sizes = marker_sizes(found)
    yield "Bytes that each marker adds to the memory image"
    yield f"{found.arch}, kernel {kernel}, {found.compiler or 'unknown compiler'}"
    yield ""
    headings = [name for flavour in sizes for name in (flavour, "published")]
    yield from Grid(headings, [_rows(list(sizes.values()))], together=4).lines(_WIDTH, "-")
    yield ""
    yield "Published: Linux Kernel Markers 0.19, x86; its sections are .markers and .markers.c."
    yield "Likely path: the marker's own instructions. Unlikely path: what the function has"
    yield "there more than without a marker, its frame too if the compiler puts that there."
    yield "Markers of one format share its text."


def listing_lines(found: ObjectFile) -> Iterator[str]:
    """Yield the disassembly of the functions without and with a marker, and of the probe. Raises EvidenceError."""
    for title, lines in (
        ("Without marker", paths(found, UNMARKED).listing),
        *((flavour.capitalize(), size.listing) for flavour, size in marker_sizes(found).items()),
        ("The probe", probe_listing(found)),
    ):
        yield ""
        yield title
        yield from lines


def _rows(sizes: list[MarkerSize]) -> list[Row]:
    published = list(marker_benchmarks().sizes.values())
    # In the document the flag is a marker's only part in .data; here it is in __marker_data.
    pairs: list[tuple[str, list[int], list[int | str]]] = [
        (".text, likely path", [one.likely for one in sizes], [one.likely for one in published]),
        (".text, unlikely path", [one.unlikely for one in sizes], [one.unlikely for one in published]),
        ("flag that is loaded", [one.flag for one in sizes], [one.flag for one in published]),
        (".data", [one.data for one in sizes], [one.flag for one in published]),
        (".rodata, name", [one.name for one in sizes], ["its length"] * 2),
        (".rodata, format", [one.format for one in sizes], ["-"] * 2),
    ]
    for index, section in enumerate(sizes[0].sections):
        theirs: list[int | str] = [list(one.sections.values())[index] for one in published]
        pairs.append((section, [one.sections[section] for one in sizes], theirs))
    return [
        Row(label, [str(number) for pair in zip(ours, theirs, strict=True) for number in pair])
        for label, ours, theirs in pairs
    ]
