# SPDX-License-Identifier: GPL-2.0-only
"""The benchmarks of whole programs: what each runs, in which image, and the choices of its amount."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from orchestrator.catalog.data import Fact, read
from orchestrator.catalog.kernels import Arch

WorkloadName = Literal["kernel-build", "ping-flood", "command"]


class SystemWorkload(Fact):
    """One benchmark: its script in ``images/unattended``, its image by architecture, the least memory in MiB."""

    title: str
    done: Literal["object", "packet", "run"]
    script: str
    images: dict[Arch, str]
    memory_mib: int


class BuildScope(Fact):
    """The part of a kernel that is built; ``seconds`` is the approximate guest time of a warm run."""

    title: str
    targets: list[str]
    seconds: int


class SystemWorkloads(Fact):
    """All of them by name; ``runs`` (warm ones), ``packets`` and ``scope`` are the defaults."""

    runs: int
    packets: int
    benchmarks: dict[WorkloadName, SystemWorkload]
    scope: str
    scopes: dict[str, BuildScope]


@lru_cache(maxsize=1)
def system_workloads() -> SystemWorkloads:
    """Return the catalogue's benchmarks of whole programs."""
    return SystemWorkloads.model_validate(read("workloads.yaml", __package__))


def system_workload(name: str) -> SystemWorkload | None:
    """Return the benchmark of whole programs that has this name; None for any other name."""
    return {str(key): value for key, value in system_workloads().benchmarks.items()}.get(name)
