# SPDX-License-Identifier: GPL-2.0-only
"""The words with which the shell completes options and arguments. It starts a program each time: modules load late."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from orchestrator.errors import LabError
from orchestrator.late_import import loaded
from orchestrator.results.runs import opened_store
from orchestrator.results.store import Store

if TYPE_CHECKING:  # what prints: a command loads it when it prints
    pass


def _words(
    source: str, words: Callable[[Any], Iterable[str]] = lambda function: function()
) -> Callable[[str], list[str]]:
    """Complete with the ``words`` of ``MODULE:NAME``, by default the result of a function."""

    def complete(incomplete: str) -> list[str]:
        return [str(word) for word in words(loaded(source)) if word.startswith(incomplete)]

    return complete


def _stored(words: Callable[[Store], Iterable[object]]) -> Callable[[str], list[str]]:
    """Complete with words of the lab's store, or with nothing if it cannot be read."""

    def complete(incomplete: str) -> list[str]:
        try:
            with opened_store() as store:
                known = () if store is None else words(store)
                return [word for word in map(str, known) if word.startswith(incomplete)]
        except (LabError, OSError):
            return []

    return complete


kernels = _words("catalog.kernels:kernels")
images = _words("catalog.image_recipes:images")
cpus = _words("catalog.cpus:cpus")
price_lists = _words("catalog.price_list:priced_cpus", lambda known: known())
templates = _words("artifacts.module_source:templates")
cache_kinds = _words("artifacts.cache_entries:Kind", iter)
fleets = _words("fleet.state:known_fleets")
lists = _words("library.name_lists:all_lists")
runs = _stored(lambda store: ["latest", *store.baselines(), *(entry.id for entry in store.runs())])
baselines = _stored(lambda store: store.baselines())
metrics = _stored(lambda store: loaded("results.cost_history:metrics")(store))
