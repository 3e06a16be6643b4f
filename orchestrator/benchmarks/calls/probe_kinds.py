# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of probe a call can have: the catalogue's, users' modules, and those that verify one capability."""

from __future__ import annotations

from orchestrator.benchmarks.calls.capabilities import capability_list, capability_names
from orchestrator.catalog import probes as catalogue
from orchestrator.catalog.probes import ProbeKind, probes


def call_probe(name: str) -> ProbeKind:
    """Return the kind of probe, or the user's module where the name is a path (with a slash in it).

    Raises ConfigError for an unknown name or a missing file.
    """
    return _showing(*capability_names()[name]) if name in capability_names() else catalogue.probe_kind(name)


def _showing(probe: str, capability: str) -> ProbeKind:
    kind, grant = probes()[probe], capability_list().capabilities[capability].probes[probe]
    return kind.model_copy(
        update={
            "name": f"{probe}.{capability}",
            "title": f"{probe}, {capability_list().capabilities[capability].title}",
            "column": None,
            "template": f"capability_{probe}",
            "mechanism": kind.mechanism if grant.int3 is not None else "own",
            "int3_per_hit": grant.int3,
            "capability": capability,
            "extras": "none",
        }
    )
