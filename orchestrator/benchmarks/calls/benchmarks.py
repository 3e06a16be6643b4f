# SPDX-License-Identifier: GPL-2.0-only
"""The catalogue of calls: their benchmarks, the kinds of probe, and the capabilities of List 15."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from pydantic import Field

from orchestrator.arch import Arch
from orchestrator.catalog import probes as catalogue
from orchestrator.catalog.data import CatalogEntry, named, read
from orchestrator.catalog.probes import ProbeKind, probes

Entry = Literal["auto", "int80", "sysenter", "syscall"]

ENTRIES: dict[Arch, tuple[Entry, ...]] = {
    "i386": ("auto", "int80", "sysenter"),
    "x86_64": ("auto", "syscall", "int80"),
}
"""The system call entries that programs of an architecture have."""

COUNTED_BENCHMARK = "program"
"""The benchmark that counts the instructions of whole programs, by system call."""


class Buffer(CatalogEntry):
    """A system call's argument: the address of ``size`` zeroed bytes."""

    buffer: int


class BenchmarkSpec(CatalogEntry):
    """A benchmark: its entries into the kernel, the system call it makes, and the probed symbol for each entry.

    Without a ``call`` the experiment names it; without ``symbols`` the kernel's dispatch decides.
    """

    name: str
    title: str
    entries: list[Entry]
    call: str | None = None
    arguments: list[int | Buffer] = Field(default_factory=list)
    symbols: dict[Arch, dict[Entry, str]] = Field(default_factory=dict)


@lru_cache(maxsize=1)
def benchmarks() -> Mapping[str, BenchmarkSpec]:
    """The benchmarks by name."""
    return named(BenchmarkSpec, read("benchmarks.yaml", __package__))


SHOWN_FOR = ("kprobe", "jprobe", "djprobe")
"""The list's columns."""


class Grant(CatalogEntry):
    """Whether the document grants a capability to a probe, and how a guest verifies that: by hits, or by a refusal.

    Where the document denies it and hits are counted, a hit is one without the capability.
    """

    int3: int | None
    grants: bool
    shown: Literal["hits", "refusal"]
    note: str | None = None


class Capability(CatalogEntry):
    """A capability, and the row of the list that it belongs to."""

    row: str
    title: str
    probes: dict[str, Grant]


class ListRow(CatalogEntry):
    """A row of the list, in the document's words."""

    title: str
    published: dict[str, str]


class CapabilityList(CatalogEntry):
    """List 15 of the djprobe document."""

    rows: dict[str, ListRow]
    footnote: str
    capabilities: dict[str, Capability]


@lru_cache(maxsize=1)
def capability_list() -> CapabilityList:
    """The list."""
    return CapabilityList.model_validate(read("capabilities.yaml", __package__))


@lru_cache(maxsize=1)
def capability_grants() -> Mapping[str, tuple[str, Capability, Grant]]:
    """The probe, the capability and its grant by the name that an experiment may use, ``djprobe.pre-exec``."""
    known = capability_list().capabilities.items()
    return {
        f"{probe}.{name}": (probe, capability, capability.probes[probe])
        for probe in SHOWN_FOR
        for name, capability in known
        if probe in capability.probes
    }


def call_probe(name: str) -> ProbeKind:
    """The kind of probe of a name or a user's file. Raises ConfigError for an unknown name or a missing file."""
    if name not in capability_grants():
        return catalogue.probe_kind(name)
    probe, capability, grant = capability_grants()[name]
    kind = probes()[probe]
    return kind.model_copy(
        update={
            "name": name,
            "title": f"{probe}, {capability.title}",
            "column": None,
            "template": f"capability_{probe}",
            "mechanism": kind.mechanism if grant.int3 is not None else "own",
            "int3_per_hit": grant.int3,
            "capability": name.removeprefix(f"{probe}."),
            "extras": "none",
        }
    )
