# SPDX-License-Identifier: GPL-2.0-only
"""YAML that a person, or the host that a run is from, has written."""

from __future__ import annotations

from fuzz.scratch import file
from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.file import load_experiment
from orchestrator.model.price_file import load_price_file


def _qemu_cpu_names() -> frozenset[str]:
    return frozenset({"qemu32", "qemu64"})


def read_experiment(data: bytes) -> None:
    """An experiment, as ``run`` and ``--dry-run`` load it."""
    load_experiment(file("experiment.yaml", data), kinds(), qemu_cpu_names=_qemu_cpu_names)


def read_price_list(data: bytes) -> None:
    """A CPU's price list, and whether it may be used."""
    assert load_price_file(file("costs.yaml", data)).unusable != ""
