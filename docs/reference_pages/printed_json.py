# SPDX-License-Identifier: GPL-2.0-only
"""The page of what commands print for programs: the models that ``--schema`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from orchestrator.comparison.comparison_json import PrintedComparison
from orchestrator.comparison.series_json import PrintedSeries
from orchestrator.cost.costs_json import PrintedCosts
from orchestrator.fleet.status import FleetStatus
from orchestrator.library.function_probes import PrintedDisassembly
from orchestrator.library.name_lists import listed_rows
from orchestrator.nightly.night_json import NightReport, UnmeasuredNight
from orchestrator.profile.stored.profiles_json import PrintedDifference, PrintedFunction, PrintedProfile, PrintedTree
from orchestrator.report.bisection_json import PrintedBisection
from orchestrator.report.history_json import PrintedHistories

from .markdown import anchor, filled, table
from .markdown import page as whole_page
from .schemas import sections_to_read

_COMMANDS: Mapping[str, Sequence[type[BaseModel]]] = {
    "cost": [PrintedCosts],
    "compare": [PrintedComparison],
    "series": [PrintedSeries],
    "bisect": [PrintedBisection],
    "history": [PrintedHistories],
    "nightly --webhook": [NightReport, UnmeasuredNight],
    "profile": [PrintedProfile, PrintedTree, PrintedDifference, PrintedFunction],
    "disasm": [PrintedDisassembly],
    "fleet status": [FleetStatus],
    "list": [model for rows in get_args(listed_rows()) for model in get_args(rows)],
}


def page() -> str:
    """All keys of what commands print for programs, but for runs and modelled times."""
    models = {model.__name__: model for model in _all_models()}
    commands = [
        (f"`{command}`", ", ".join(f"[{model.__name__}](#{anchor(model.__name__)})" for model in printed))
        for command, printed in _COMMANDS.items()
    ]
    return whole_page(
        "What commands print for programs",
        [
            filled(
                """Each command with `--format json` or `--json` prints its JSON schema with `--schema`. The names of
                the sections are those of the schema's definitions. [The result contract](result.md) has the keys of
                `run` and `report`."""
            ),
            table(("command", "prints"), commands),
            *sections_to_read(models),
        ],
    )


def _all_models() -> Iterator[type[BaseModel]]:
    """The models of the commands, each with those of its parts, once."""
    known: dict[type[BaseModel], None] = {}
    pending = [model for printed in reversed([*_COMMANDS.values()]) for model in reversed(printed)]
    while pending:
        model = pending.pop()
        if model in known:
            continue
        known[model] = None
        parts = [part for field in model.model_fields.values() for part in _models_in(field.annotation)]
        pending += reversed(parts)
    return iter(known)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
