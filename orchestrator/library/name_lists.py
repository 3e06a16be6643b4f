# SPDX-License-Identifier: GPL-2.0-only
"""Lists of names for experiments, of runs and of baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Union

from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.cpus import cpus
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import probes
from orchestrator.catalog.published_tables import reference_tables
from orchestrator.catalog.words import vocabulary
from orchestrator.cost.call_table import call_table
from orchestrator.experiment.table_kind import Listing
from orchestrator.results.printed_json import IsoTime, Printed
from orchestrator.results.runs import opened_store


def all_lists() -> Mapping[str, Listing]:
    """All lists by name: the catalogue's, those of the benchmark kinds, runs and baselines."""
    of_kinds = {name: listing for kind in kinds() for name, listing in kind.lists().items()}
    return {**_CATALOGUE, **of_kinds, "runs": _RUNS, "baselines": _BASELINES}


def listed_rows() -> Any:
    """The type of what a list is for programs: rows of one of the models."""
    return Union[tuple(list[listing.row] for listing in all_lists().values())]  # type: ignore[name-defined]  # noqa: UP007


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


class ListedRun(Printed):
    """A stored run."""

    run: str
    """The run's id."""
    experiment: str
    """The experiment's name."""
    started: IsoTime
    """When it began."""
    status: str
    """The run's status, such as ``complete``."""
    ok: int
    """Cells with a number."""
    failed: int
    """Cells that failed."""
    other: int
    """Cells that were skipped, or that the kernel does not support."""
    open: int
    """Cells without an outcome."""
    directory: str
    """The run's directory."""


class ListedBaseline(Printed):
    """A name of a run."""

    baseline: str
    """The name."""
    run: str
    """The run's id."""
    experiment: str
    """The experiment's name."""
    status: str
    """The run's status."""
    since: IsoTime
    """When the run got the name."""


class ListedCpu(Printed):
    """A CPU model of the catalogue."""

    name: str
    """Its name in experiments."""
    title: str
    """The processor."""
    modes: Sequence[str]
    """Kernels that it runs, by word size."""


class ListedKernel(Printed):
    """A kernel of the catalogue."""

    name: str
    """Its name in experiments."""
    title: str
    """What is special about it."""
    architecture: str
    """Its architecture."""
    origin: str
    """The package or source that it is made of."""


class ListedProbe(Printed):
    """A kind of probe."""

    name: str
    """Its name in experiments."""
    title: str
    """The kind in words."""
    linux_since: str | None
    """The first release that has it; None for all that the lab knows."""
    mechanism: str
    """How it gets control."""
    int3_per_hit: int
    """Breakpoint traps of a hit."""
    published_as: str | None
    """The column of published tables."""


class ListedHandler(Printed):
    """An action of a hit."""

    name: str
    """Its name in experiments."""
    what_a_hit_does: str
    """The action in words."""


class ListedBenchmark(Printed):
    """A benchmark."""

    name: str
    """Its name in experiments."""
    title: str
    """The benchmark in words."""
    system_call_entries: Sequence[str]
    """The ways into the kernel that it knows."""
    kind: str
    """Its kind."""


class ListedCall(Printed):
    """A call of the table of ``cost``."""

    name: str
    """Its name."""
    title: str
    """The call in words."""
    system_calls: Sequence[str]
    """The system calls that it makes."""


class ListedClock(Printed):
    """A clock."""

    name: str
    """Its name in experiments."""
    counts: str
    """The clock in words."""


class ListedReference(Printed):
    """A published table."""

    id: str
    """Its name in experiments."""
    title: str
    """Its title in the document."""
    cpu: str | None
    """The CPU that was measured; None if the document does not say it."""
    handler: str
    """The action of a hit."""
    unit: str
    """The unit of its figures."""
    columns: Sequence[str]
    """Its columns."""


_RUNS = Listing(ListedRun, _runs)
_BASELINES = Listing(ListedBaseline, _baselines)
_CATALOGUE: Mapping[str, Listing] = {
    "cpus": Listing(
        ListedCpu,
        lambda: [(c.name, c.title, ["32 bit", "64 bit"] if c.long_mode else ["32 bit"]) for c in cpus().values()],
    ),
    "kernels": Listing(
        ListedKernel,
        lambda: [(k.name, k.title, k.arch, k.origin) for k in kernels().values()],
    ),
    "probes": Listing(
        ListedProbe,
        lambda: [
            (p.name, p.title, p.since and p.since.release, p.mechanism, p.int3_per_hit, p.column)
            for p in probes().values()
        ],
    ),
    "handlers": Listing(ListedHandler, lambda: vocabulary()["handlers"].items()),
    "benchmarks": Listing(
        ListedBenchmark,
        lambda: [(name, b.title, b.entries, kind.name) for kind in kinds() for name, b in kind.benchmarks().items()],
    ),
    "calls": Listing(ListedCall, lambda: [(c.name, c.title, c.events) for c in call_table().values()]),
    "clocks": Listing(ListedClock, lambda: vocabulary()["clocks"].items()),
    "references": Listing(
        ListedReference,
        lambda: [(t.id, t.title, t.cpu, t.handler, t.unit, t.columns) for t in reference_tables().values()],
    ),
}
