# SPDX-License-Identifier: GPL-2.0-only
"""The benchmarks of whole programs, and the figures that documents have of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from orchestrator.arch import Arch
from orchestrator.catalog.data import CatalogEntry, named, read
from orchestrator.catalog.kernel_variants import MARK
from orchestrator.catalog.probes import BASELINE


class SystemWorkload(CatalogEntry):
    """One benchmark: its script in ``images/unattended``, its image by architecture, the least memory in MiB."""

    title: str
    done: Literal["object", "packet", "run"]
    script: str
    images: dict[Arch, str]
    memory_mib: int


class BuildScope(CatalogEntry):
    """The part of a kernel that is built; ``seconds`` is the approximate guest time of a warm run."""

    title: str
    targets: list[str]
    seconds: int


class SystemWorkloads(CatalogEntry):
    """All benchmarks by name; ``runs`` (warm ones), ``packets`` and ``scope`` are defaults."""

    runs: int
    packets: int
    benchmarks: dict[str, SystemWorkload]
    scope: str
    scopes: dict[str, BuildScope]


@lru_cache(maxsize=1)
def system_workloads() -> SystemWorkloads:
    """The catalogue of workloads."""
    return SystemWorkloads.model_validate(read("workloads.yaml", __package__))


class PublishedWork(CatalogEntry):
    """A published row: times in seconds, or an ``overhead`` in per cent, qualified by ``bound`` (``about``, ...)."""

    real: float | None = None
    user: float | None = None
    system: float | None = None
    packets: int | None = None
    overhead: float | None = None
    bound: str = ""
    estimated: bool = False

    @property
    def packets_per_second(self) -> float | None:
        return None if self.packets is None or self.real is None else self.packets / self.real


class PublishedSystem(CatalogEntry):
    """A published table of a whole-system workload; its rows are kernels' variants or probes."""

    name: str
    title: str
    document: str
    conditions: str
    benchmark: str
    by: Literal["kernel", "probe"]
    unit: Literal["s", "percent"]
    rows: dict[str, PublishedWork]

    @property
    def baseline(self) -> PublishedWork:
        return next(iter(self.rows.values()))

    def difference(self, row: PublishedWork) -> float | None:
        """A row's time less the baseline's, in seconds; for an equal number of packets where any were sent."""
        base = self.baseline
        if row.real is None or base.real is None:
            return None
        scale = base.packets / row.packets if base.packets and row.packets else 1.0
        return row.real * scale - base.real

    def row(self, kernel: str, probe: str) -> PublishedWork | None:
        if self.by == "probe":
            return self.rows.get(probe)
        variant = "markers" if kernel.partition(MARK)[0].endswith("-markers") else "plain"
        return self.rows.get(variant) if probe == BASELINE else None


@lru_cache(maxsize=1)
def published_systems() -> Mapping[str, PublishedSystem]:
    """The tables by id, such as ``markers-2006/ping-flood``."""
    return named(PublishedSystem, read("published.yaml", __package__))
