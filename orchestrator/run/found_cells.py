# SPDX-License-Identifier: GPL-2.0-only
"""What cells of an experiment depend on and only a guest can tell: found out before there is a plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact, Cache
from orchestrator.errors import HostError
from orchestrator.experiment.experiment import Experiment, NamedTable
from orchestrator.experiment.kind import KindRegistry
from orchestrator.run.kind import BenchmarkKind, Obtain


def with_found(context: BuildContext, experiment: Experiment, kinds: KindRegistry[BenchmarkKind]) -> Experiment:
    """The experiment with all that its kinds find out in guests; once found, it is in the cache.

    Raises GuestError, EvidenceError, HostError, and UsageError where nothing can be found.
    """
    return _with(context, experiment, kinds, context.cache.obtain)


def with_found_before(context: BuildContext, experiment: Experiment, kinds: KindRegistry[BenchmarkKind]) -> Experiment:
    """The same, as far as it was found before: no guest is started."""
    try:
        return _with(context, experiment, kinds, _those_of(context.cache))
    except HostError:  # a kernel that is not there
        return experiment


def _with(
    context: BuildContext, experiment: Experiment, kinds: KindRegistry[BenchmarkKind], obtain: Obtain
) -> Experiment:
    def found(one: NamedTable) -> NamedTable:
        return replace(one, table=kinds.named(one.kind.name).find(context, one.table, obtain))

    return replace(experiment, tables=[found(one) for one in experiment.tables])


def _those_of(cache: Cache) -> Obtain:
    def get(kind: str, inputs: Mapping[str, object], label: str, build: Callable[[Path], None]) -> Artifact | None:
        del label, build
        return cache.get(kind, inputs)

    return get
