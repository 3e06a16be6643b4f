# SPDX-License-Identifier: GPL-2.0-only
"""The mechanisms whose attaching is measured, for planning and reports alike."""

from __future__ import annotations

from functools import lru_cache

from pydantic import RootModel

from orchestrator.catalog.data import read
from orchestrator.catalog.probes import KernelFeature

BENCHMARK = "attach"
ALL = "all"
"""The count of all functions that the kernel has for a mechanism."""


class Mechanism(KernelFeature):
    """A way to attach to many functions; ``rows.yaml`` explains the fields."""

    title: str
    module: str | None = None
    at_once: bool = False
    outlives: bool = False
    taint: int | None = None
    needs: list[str]


@lru_cache(maxsize=1)
def mechanisms() -> dict[str, Mechanism]:
    """The mechanisms by name."""
    return RootModel[dict[str, Mechanism]].model_validate(read("rows.yaml", __package__)).root


def row_name(mechanism: str) -> str:
    """The row of a mechanism among an experiment's probes."""
    return f"{BENCHMARK}.{mechanism}"


def mechanism_of(row: str) -> str:
    """The name of a row's mechanism."""
    return row.partition(".")[2]
