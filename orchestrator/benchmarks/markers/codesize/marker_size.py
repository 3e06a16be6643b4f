# SPDX-License-Identifier: GPL-2.0-only
"""Bytes that a marker of each flavour adds to an object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from orchestrator.benchmarks.markers.codesize.marker_code import MARKER_DATA, paths
from orchestrator.benchmarks.markers.codesize.object_file import ObjectFile, Place, Variable
from orchestrator.errors import EvidenceError

Flavour = Literal["optimized", "generic"]

SITES = "__markers"
"""The section that lists where markers are."""
UNMARKED, PROBE = "my_open_unmarked", "do_mark1"
_MARKED: Mapping[Flavour, tuple[str, bytes]] = {
    "optimized": ("my_open_optimized", b"subsys_mark1"),
    "generic": ("my_open_generic", b"subsys_mark2"),
}
"""The marked functions, and their markers' names."""


@dataclass(frozen=True)
class MarkerSize:
    """Bytes that one marker adds, and the marked function's listing; sections of its own by their name.

    ``likely`` is the marker's own instructions, ``unlikely`` the rest of what the marker adds to the function. ``flag``
    is the memory that the likely path reads, ``data`` the marker's part of .data, ``name`` and ``format`` its texts.
    """

    likely: int
    unlikely: int
    flag: int
    data: int
    name: int
    format: int
    sections: Mapping[str, int]
    listing: Sequence[str]


def marker_sizes(found: ObjectFile) -> dict[Flavour, MarkerSize]:
    """Bytes that each flavour adds in an object of ``marker_sizes.c.j2``. Raises EvidenceError for another object."""
    return {flavour: _size(found, *marked) for flavour, marked in _MARKED.items()}


def probe_listing(found: ObjectFile) -> Sequence[str]:
    """The document's probe, disassembled."""
    return paths(found, PROBE).listing


def _size(found: ObjectFile, function: str, name: bytes) -> MarkerSize:
    marked, plain = paths(found, function), paths(found, UNMARKED)
    if not marked.marker:
        raise EvidenceError(f"the likely path of {function} has no marker")
    marker = _marker(found, name)
    name_text, format_text, *_ = (len(found.text(place)) + 1 for place in found.pointed(marker))
    own = [one for one in found.variables if one.place in found.pointed(marker)]
    return MarkerSize(
        likely=marked.marker,
        unlikely=marked.unlikely - plain.unlikely,
        flag=marked.flag,
        data=sum(one.size for one in own if one.place.section == ".data"),
        name=name_text,
        format=format_text,
        sections={SITES: _sites(found, marker), MARKER_DATA: marker.size},
        listing=marked.listing,
    )


def _marker(found: ObjectFile, name: bytes) -> Variable:
    """The marker of that name: a variable whose first two pointers lead to its name and its format."""
    for variable in found.variables:
        if variable.place.section == MARKER_DATA:
            pointed = found.pointed(variable)
            if len(pointed) > 1 and found.text(pointed[0]) == name:
                return variable
    raise EvidenceError(f"the object has no marker {name.decode('ascii')}")


def _sites(found: ObjectFile, marker: Variable) -> int:
    """Bytes of the marker's entries in the list of sites: each entry begins with a pointer to its marker."""
    heads = {
        place.at: target
        for place, target in found.pointers.items()
        if place.section == SITES and target.section == MARKER_DATA
    }
    bounds = [*sorted(heads), len(found.sections.get(SITES, b""))]
    size = sum(behind - at for at, behind in pairwise(bounds) if heads[at] == Place(MARKER_DATA, marker.place.at))
    if not size:
        raise EvidenceError(f"the object does not list where the marker {marker.name} is")
    return size
