# SPDX-License-Identifier: GPL-2.0-only
"""The capabilities of each kind of probe in List 15 of the djprobe document, and how a guest verifies them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import Fact, read

SHOWN_FOR = ("kprobe", "jprobe", "djprobe")
"""The list's columns."""


class Grant(Fact):
    """The document's entry for one probe's capability, and how a guest verifies it: by hits, or by a refusal.

    Where the document denies the capability and hits are counted, a hit is one in which the capability was absent.
    """

    int3: int | None
    grants: bool
    shown: Literal["hits", "refusal"]
    note: str | None = None


class Capability(Fact):
    """One capability, and the list's row that it belongs to."""

    row: str
    title: str
    probes: dict[str, Grant]


class ListRow(Fact):
    """A row of the list, in the document's words."""

    title: str
    published: dict[str, str]


class CapabilityList(Fact):
    """The whole list."""

    rows: dict[str, ListRow]
    footnote: str
    capabilities: dict[str, Capability]


@lru_cache(maxsize=1)
def capability_list() -> CapabilityList:
    """Return List 15."""
    return CapabilityList.model_validate(read("capabilities.yaml", __package__))


@lru_cache(maxsize=1)
def capability_names() -> Mapping[str, tuple[str, str]]:
    """Return the probe and the capability of each name that an experiment may use: ``djprobe.pre-exec``."""
    capabilities = capability_list().capabilities
    return {
        f"{probe}.{name}": (probe, name)
        for probe in SHOWN_FOR
        for name, capability in capabilities.items()
        if probe in capability.probes
    }
