# SPDX-License-Identifier: GPL-2.0-only
"""What a shell offers for the beginning of a word; it begins a program each time, so nothing is loaded in advance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.results.store import Store


def kernels(incomplete: str) -> list[str]:
    """Kernels of the catalogue."""
    from orchestrator.catalog.kernels import kernels

    return _beginning(incomplete, kernels())


def images(incomplete: str) -> list[str]:
    """The lab's own images."""
    from orchestrator.catalog.images import images

    return _beginning(incomplete, images())


def cpus(incomplete: str) -> list[str]:
    """CPU models of the catalogue."""
    from orchestrator.catalog.cpus import cpus

    return _beginning(incomplete, cpus())


def cost_tables(incomplete: str) -> list[str]:
    """CPUs that have a cost table."""
    from orchestrator.model.cost_file import cost_files

    return _beginning(incomplete, (path.stem for path in cost_files()))


def templates(incomplete: str) -> list[str]:
    """Probe modules."""
    from orchestrator.artifacts.module_source import templates

    return _beginning(incomplete, templates())


def cache_kinds(incomplete: str) -> list[str]:
    """Kinds of things in the cache."""
    from orchestrator.artifacts.cache_entries import Kind

    return _beginning(incomplete, Kind)


def fleets(incomplete: str) -> list[str]:
    """Fleets that were started here."""
    from orchestrator.fleet.state import known_fleets

    return _beginning(incomplete, known_fleets())


def lists(incomplete: str) -> list[str]:
    """What can be listed."""
    from orchestrator.cli.listing import all_lists

    return _beginning(incomplete, all_lists())


def runs(incomplete: str) -> list[str]:
    """What RUN may be: ``latest``, baselines, and the lab's runs, the newest first; none where they cannot be read."""
    return _of_the_store(
        incomplete, lambda store: ["latest", *store.baselines(), *(entry.id for entry in store.runs())]
    )


def baselines(incomplete: str) -> list[str]:
    """Names of baselines; none where they cannot be read."""
    return _of_the_store(incomplete, lambda store: store.baselines())


def _of_the_store(incomplete: str, words: Callable[[Store], Iterable[str]]) -> list[str]:
    from orchestrator.errors import LabError
    from orchestrator.paths import lab_dir
    from orchestrator.results.store import FILE_NAME, Store

    try:
        if not (lab_dir() / FILE_NAME).exists():
            return []
        with Store.open(lab_dir()) as store:
            return _beginning(incomplete, words(store))
    except (LabError, OSError):
        return []


def metrics(incomplete: str) -> list[str]:
    """What has a history in this lab, EXPERIMENT:CELL; none where it cannot be read."""
    from orchestrator.errors import LabError
    from orchestrator.paths import lab_dir
    from orchestrator.results.history import metrics
    from orchestrator.results.store import FILE_NAME, Store

    try:
        if not (lab_dir() / FILE_NAME).exists():
            return []
        with Store.open(lab_dir()) as store:
            return _beginning(incomplete, map(str, metrics(store)))
    except (LabError, OSError):
        return []


def _beginning(incomplete: str, words: Iterable[str]) -> list[str]:
    return [str(word) for word in words if word.startswith(incomplete)]
