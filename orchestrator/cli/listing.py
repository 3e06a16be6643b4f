# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator list``: what an experiment can name, and the runs there are."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import typer

from orchestrator.cli.columns import print_columns
from orchestrator.cli.failures import expected_failures


class Subject(StrEnum):
    """What can be listed."""

    CPUS = "cpus"
    KERNELS = "kernels"
    PROBES = "probes"
    BENCHMARKS = "benchmarks"
    RUNS = "runs"


@expected_failures
def show(what: Annotated[Subject, typer.Argument(help="What to list.")]) -> None:
    """List CPU models, kernels, probes, benchmarks or runs."""
    print_columns(*_LISTS[what]())


def _cpus() -> tuple[list[str], Iterable[list[str]]]:
    from orchestrator.catalog.cpus import cpus

    rows = ([c.name, c.title, "32 and 64 bit" if c.long_mode else "32 bit"] for c in cpus().values())
    return ["name", "CPU", "modes"], [*rows, ["...", "any model of QEMU's own, by QEMU's name", ""]]


def _kernels() -> tuple[list[str], Iterable[list[str]]]:
    from orchestrator.catalog.kernels import kernels

    return ["name", "kernel", "architecture", "origin"], (
        [k.name, k.title, k.arch, k.origin] for k in kernels().values()
    )


def _probes() -> tuple[list[str], Iterable[list[str]]]:
    from orchestrator.catalog.probes import probes

    return ["name", "probe", "mechanism", "int3 a hit"], (
        [p.name, p.title, p.mechanism, str(p.int3_per_hit)] for p in probes().values()
    )


def _benchmarks() -> tuple[list[str], Iterable[list[str]]]:
    from orchestrator.catalog.benchmarks import benchmarks

    return ["name", "benchmark", "system call entries"], (
        [b.name, b.title, ", ".join(b.entries)] for b in benchmarks().values()
    )


def _runs() -> tuple[list[str], Iterable[list[str]]]:
    from orchestrator.paths import lab_dir
    from orchestrator.results.store import FILE_NAME, Store

    header = ["run", "experiment", "status", "directory"]
    if not (lab_dir() / FILE_NAME).exists():
        return header, []
    with Store.open(lab_dir()) as store:
        return header, [[r.id, r.experiment, r.status, str(r.directory)] for r in store.runs()]


_LISTS = {
    Subject.CPUS: _cpus,
    Subject.KERNELS: _kernels,
    Subject.PROBES: _probes,
    Subject.BENCHMARKS: _benchmarks,
    Subject.RUNS: _runs,
}
