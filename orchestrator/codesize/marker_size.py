# SPDX-License-Identifier: GPL-2.0-only
"""What a marker of each flavour adds to an object, beside the table of the document of 2006."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.codesize.marker_code import Paths, paths
from orchestrator.codesize.object_file import ObjectFile
from orchestrator.errors import EvidenceError

Flavour = Literal["optimized", "generic"]

MARKER_SECTIONS = ("__markers", "__marker_data")
"""Where a marker is listed, and where its name, format, probe and flag are."""
UNMARKED, PROBE = "my_open_unmarked", "do_mark1"
_MARKED: Mapping[Flavour, str] = {"optimized": "my_open_optimized", "generic": "my_open_generic"}


@dataclass(frozen=True)
class MarkerSize:
    """Bytes that one marker adds, and the marked function's listing; sections by their name."""

    likely: int
    unlikely: int
    sections: Mapping[str, int]
    listing: Sequence[str]


def marker_sizes(found: ObjectFile) -> dict[Flavour, MarkerSize]:
    """What each flavour adds, in an object built from ``kmods/marker_sizes.c.j2``. Raises EvidenceError for another."""
    plain = paths(found, UNMARKED)
    sections = {name: found.sections.get(name, 0) // len(_MARKED) for name in MARKER_SECTIONS}
    if not all(sections.values()):
        raise EvidenceError("the object has no sections of markers")
    return {flavour: _added(paths(found, name), plain, sections) for flavour, name in _MARKED.items()}


def probe_listing(found: ObjectFile) -> Sequence[str]:
    """The document's probe, disassembled."""
    return paths(found, PROBE).listing


def _added(marked: Paths, plain: Paths, sections: Mapping[str, int]) -> MarkerSize:
    return MarkerSize(marked.likely - plain.likely, marked.unlikely - plain.unlikely, sections, marked.listing)
