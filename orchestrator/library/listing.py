# SPDX-License-Identifier: GPL-2.0-only
"""Lists of names for experiments, of runs and of baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.cpus import cpus
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import probes
from orchestrator.catalog.reference import reference_tables
from orchestrator.catalog.words import vocabulary
from orchestrator.cost.reaching import call_table
from orchestrator.experiment.table import Listing
from orchestrator.results.runs import opened_store


def all_lists() -> Mapping[str, Listing]:
    """All lists by name: the catalogue's, those of the benchmark kinds, runs and baselines."""
    of_kinds = {name: listing for kind in kinds() for name, listing in kind.lists().items()}
    return {**_CATALOGUE, **of_kinds, "runs": _RUNS, "baselines": _BASELINES}


def _runs() -> Sequence[Sequence[object]]:
    rows: list[Sequence[object]] = []
    with opened_store() as store:
        counts = {} if store is None else store.cell_counts()
        for run in () if store is None else store.runs():
            cells = counts.get(run.id, Counter())
            without_number = cells["skipped"] + cells["unsupported"]
            outcomes = (cells["ok"], cells["failed"], without_number, cells["planned"])
            started = datetime.fromisoformat(run.started)
            rows.append((run.id, run.experiment, started, run.status, *outcomes, str(run.directory)))
    return rows


def _baselines() -> Sequence[Sequence[object]]:
    with opened_store() as store:
        known = () if store is None else store.baselines().values()
        runs = [(baseline, store.entry(baseline.run)) for baseline in known] if store is not None else []
    return [
        (baseline.name, run.id, run.experiment, run.status, datetime.fromisoformat(baseline.since))
        for baseline, run in runs
    ]


_RUNS = Listing(("run", "experiment", "started", "status", "ok", "failed", "other", "open", "directory"), _runs)
_BASELINES = Listing(("baseline", "run", "experiment", "status", "since"), _baselines)
_CATALOGUE: Mapping[str, Listing] = {
    "cpus": Listing(
        ("name", "title", "modes"),
        lambda: [(c.name, c.title, ["32 bit", "64 bit"] if c.long_mode else ["32 bit"]) for c in cpus().values()],
    ),
    "kernels": Listing(
        ("name", "title", "architecture", "origin"),
        lambda: [(k.name, k.title, k.arch, k.origin) for k in kernels().values()],
    ),
    "probes": Listing(
        ("name", "title", "linux_since", "mechanism", "int3_per_hit", "published_as"),
        lambda: [
            (p.name, p.title, p.since and p.since.release, p.mechanism, p.int3_per_hit, p.column)
            for p in probes().values()
        ],
    ),
    "handlers": Listing(("name", "what_a_hit_does"), lambda: vocabulary()["handlers"].items()),
    "benchmarks": Listing(
        ("name", "title", "system_call_entries", "kind"),
        lambda: [(name, b.title, b.entries, kind.name) for kind in kinds() for name, b in kind.benchmarks().items()],
    ),
    "calls": Listing(
        ("name", "title", "system_calls"), lambda: [(c.name, c.title, c.events) for c in call_table().values()]
    ),
    "clocks": Listing(("name", "counts"), lambda: vocabulary()["clocks"].items()),
    "references": Listing(
        ("id", "title", "cpu", "handler", "unit", "columns"),
        lambda: [(t.id, t.title, t.cpu, t.handler, t.unit, t.columns) for t in reference_tables().values()],
    ),
}
