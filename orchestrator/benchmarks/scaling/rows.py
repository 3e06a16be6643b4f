# SPDX-License-Identifier: GPL-2.0-only
"""The benchmarks of the kprobe cache patch of 2014, and its published figures."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import CatalogEntry, read

LOAD_BENCHMARK, EVENTS_BENCHMARK = "kpcache-load", "kpcache-events"
LOOKUPS = ("get_kprobe", "get_kprobe_cached", "__get_kprobe")
"""One lookup: the kernel's own function, and those of images/patches/kprobe-cache.patch."""

Which = Literal["without", "with"]


class ScalingRow(CatalogEntry):
    """A figure of a benchmark of many probes: the cost of ``each`` what; a ``curve`` is measured in steps."""

    title: str
    each: Literal["probe", "event", "hit", "call", "run"]
    curve: bool = False


class ScalingBenchmarkFacts(CatalogEntry):
    """A benchmark of many probes; a ``marked`` one announces its steps to QEMU's counting plugin."""

    title: str
    template: str
    script: str
    marked: bool = False
    sizes: list[int]
    baseline: ScalingRow
    rows: dict[str, ScalingRow]


class PublishedCache(CatalogEntry):
    """The document's figures; ``seconds`` include the pauses, ``misses`` are shares in per cent."""

    enabled: int
    registered: int
    seconds: dict[Which, int]
    pauses: int
    pause_seconds: int
    cache_kib_per_cpu: int
    misses: dict[Which, dict[str, float]]

    def net_seconds(self, which: Which) -> int:
        return self.seconds[which] - self.pauses * self.pause_seconds

    @property
    def functions(self) -> list[str]:
        return list(dict.fromkeys(name for shares in self.misses.values() for name in shares))


class KprobeCache(CatalogEntry):
    """The document and its benchmarks by name."""

    source: str
    published: PublishedCache
    benchmarks: dict[str, ScalingBenchmarkFacts]


@lru_cache(maxsize=1)
def kprobe_cache() -> KprobeCache:
    """The document's benchmarks."""
    return KprobeCache.model_validate(read("rows.yaml", __package__))


def scaling_row(probe: str) -> ScalingRow | None:
    """The row of a probe's name, such as ``kpcache.enable``; None for any other name."""
    benchmark, _, row = probe.partition(".")
    facts = kprobe_cache().benchmarks.get(benchmark)
    return facts.rows.get(row) if facts else None
