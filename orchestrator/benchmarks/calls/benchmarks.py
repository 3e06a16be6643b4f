# SPDX-License-Identifier: GPL-2.0-only
"""The benchmarks that make calls, the kinds of probe a call can have, and the capabilities of List 15."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from pydantic import Field

from orchestrator.arch import Arch
from orchestrator.catalog import probes as catalogue
from orchestrator.catalog.data import Fact, named, read
from orchestrator.catalog.probes import ProbeKind, probes

Entry = Literal["auto", "int80", "sysenter", "syscall"]

ENTRIES: dict[Arch, tuple[Entry, ...]] = {
    "i386": ("auto", "int80", "sysenter"),
    "x86_64": ("auto", "syscall", "int80"),
}
"""The system call entries that programs of an architecture have."""


class Buffer(Fact):
    """A system call's argument: the address of ``size`` zeroed bytes."""

    buffer: int


class BenchmarkSpec(Fact):
    """A benchmark: its ways into the kernel, the call it makes, and the probed symbol for each way.

    Without a ``call`` the experiment names it; without ``symbols`` the kernel's own dispatch decides.
    """

    name: str
    title: str
    entries: list[Entry]
    call: str | None = None
    arguments: list[int | Buffer] = Field(default_factory=list)
    symbols: dict[Arch, dict[Entry, str]] = Field(default_factory=dict)


@lru_cache(maxsize=1)
def benchmarks() -> Mapping[str, BenchmarkSpec]:
    """Return the benchmarks by name."""
    return named(BenchmarkSpec, read("benchmarks.yaml", __package__))


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


def call_probe(name: str) -> ProbeKind:
    """The kind of probe, or the user's own. Raises ConfigError for an unknown name or a missing file."""
    if name not in capability_names():
        return catalogue.probe_kind(name)
    probe, capability = capability_names()[name]
    kind, grant = probes()[probe], capability_list().capabilities[capability].probes[probe]
    return kind.model_copy(
        update={
            "name": name,
            "title": f"{probe}, {capability_list().capabilities[capability].title}",
            "column": None,
            "template": f"capability_{probe}",
            "mechanism": kind.mechanism if grant.int3 is not None else "own",
            "int3_per_hit": grant.int3,
            "capability": capability,
            "extras": "none",
        }
    )
