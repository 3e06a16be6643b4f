# SPDX-License-Identifier: GPL-2.0-only
"""A subject that no call hits on a kernel, so that it has no line; and what it would take to reach it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from orchestrator.catalog.data import CatalogEntry, matches_any, named, read
from orchestrator.catalog.kernels import KernelSpec
from orchestrator.cost.subjects import Subject
from orchestrator.errors import UsageError


class UnreachedSubject(UsageError):
    """No call is known that hits the ``subject`` on the ``kernel``, an argument; ``cause`` says why."""

    def __init__(self, subject: Subject, kernel: KernelSpec, cause: UsageError) -> None:
        what = cause.what if cause.where == subject.title else f"{cause.where}: {cause.what}"
        super().__init__(what, where=f"{subject.title} on {kernel.name}", hint=cause.hint)
        self.subject = subject
        self.kernel = kernel.argument


class PlaceNeeds(CatalogEntry):
    """What it ``takes`` to reach functions and tracepoints, which are patterns of names; see ``unreached.yaml``."""

    name: str
    takes: str
    functions: list[str]
    tracepoints: list[str]


@lru_cache(maxsize=1)
def place_needs() -> Mapping[str, PlaceNeeds]:
    """What places need, by name, in the order in which they are looked through."""
    return named(PlaceNeeds, read("unreached.yaml"))


def without_function(function: str, why: str) -> str:
    """``why`` no call enters a function, with what it would take where that is known."""
    return _with(why, next((need for need in place_needs().values() if matches_any(function, need.functions)), None))


def without_tracepoint(event: str, why: str) -> str:
    """``why`` no call hits an event, ``SYSTEM:NAME`` or ``NAME``, with what it would take where that is known."""
    name = event.rpartition(":")[2]
    return _with(why, next((need for need in place_needs().values() if matches_any(name, need.tracepoints)), None))


def _with(why: str, needs: PlaceNeeds | None) -> str:
    return why if needs is None else f"{why}; it takes {needs.takes}"
