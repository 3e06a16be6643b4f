# SPDX-License-Identifier: GPL-2.0-only
"""A table of many probes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BeforeValidator

from orchestrator.benchmarks.scaling import fields
from orchestrator.benchmarks.scaling.rows import scaling_benchmark
from orchestrator.catalog.cpu_caches import cpu_caches
from orchestrator.catalog.profile_parts import ProfilePart
from orchestrator.experiment.file.fields import Entries, one_of, whole
from orchestrator.experiment.file.problems import Problem
from orchestrator.experiment.table import BenchmarkChoice, RowsTable

FEWEST_BESIDE_LOADS = 1000
"""Events of kpcache-load; it enables a hundred of them one by one."""


class ScalingBenchmark(BenchmarkChoice):
    """Numbers of probes, and which functions they are at."""

    sizes: Annotated[tuple[int, ...], BeforeValidator(fields.sizes)] | None = None
    """Numbers of probes, each with a guest of its own. ``kpcache-load`` has at least 1000."""
    seed: Annotated[int, whole(0, 2**32 - 1)] = 2014
    """Chooses the functions that are probed."""


def _with_sizes(benchmark: ScalingBenchmark) -> ScalingBenchmark:
    known = scaling_benchmark(benchmark.name)
    assert known is not None
    return benchmark.model_copy(update={"sizes": benchmark.sizes or tuple(known.sizes)})


class ScalingTable(RowsTable):
    """Machines, kernels, sizes and rows, of which every combination is a cell."""

    PROFILE_PARTS: ClassVar[tuple[ProfilePart, ...]] = ("symbols", "caches")

    benchmark: Annotated[ScalingBenchmark, AfterValidator(_with_sizes)]
    profile: Entries[Annotated[ProfilePart, one_of(lambda: ScalingTable.PROFILE_PARTS)]] | None = None
    """What each row says of where its instructions went, in tables of ``kpcache`` and ``kpcache-load``."""

    def conflicts(self) -> Iterator[Problem]:
        """Conflicts between values that are each valid alone."""
        if self.image is not None:
            why = f"benchmark '{self.benchmark.name}' runs in the initramfs, before an image is mounted"
            yield Problem(("image",), f"{why}; leave it out")
        known = scaling_benchmark(self.benchmark.name)
        if self.profile and known is not None and not known.marked:
            why = f"benchmark '{self.benchmark.name}' marks no work that could be counted"
            yield Problem(("profile",), f"found {', '.join(self.profile)}; {why}")
        few = [size for size in self.benchmark.sizes or () if size < FEWEST_BESIDE_LOADS]
        if few and self.benchmark.name == "kpcache-load":
            why = f"found {few[0]}; beside a load there are at least {FEWEST_BESIDE_LOADS} events"
            yield Problem(("benchmark", "sizes"), why)
        unknown = [one.cpu for one in self.machines if one.cpu not in cpu_caches()]
        if "caches" in (self.profile or ()) and unknown:
            why = f"the caches of '{unknown[0]}' are not known, only those of {', '.join(cpu_caches())}"
            yield Problem(("profile",), f"found caches; {why}")
        yield from super().conflicts()
