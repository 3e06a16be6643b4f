# SPDX-License-Identifier: GPL-2.0-only
"""An experiment with profiles of its cells, as ``--profile`` asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from orchestrator.catalog.profile_parts import ProfilePart
from orchestrator.catalog.spelling import choices_sentence
from orchestrator.errors import UsageError
from orchestrator.experiment.experiment import Experiment, NamedTable
from orchestrator.experiment.table import Table

KEY = "profile"
"""The key of tables whose kind of benchmark has profiles."""


def with_profile(experiment: Experiment, parts: Sequence[str]) -> Experiment:
    """The experiment whose tables have profiles of these parts, wherever a profile can be proved.

    Raises UsageError for an unknown part, and where no table can have one.
    """
    known = get_args(ProfilePart)
    for part in parts:
        if part not in known:
            hint = "name each by an option of its own: --profile symbols --profile stacks" if "," in part else ""
            raise UsageError(f"found '{part}'; {choices_sentence(part, known)}", where="--profile", hint=hint)
    wanted = tuple(dict.fromkeys(parts))
    reasons = unprofiled(experiment, wanted)
    if len(reasons) == len(experiment.tables):
        why = "a profile needs clock 'instructions', and work whose instructions the clock can prove (docs/profiles.md)"
        raise UsageError(f"no table of experiment '{experiment.name}' can have a profile", detail=reasons, hint=why)
    tables = [one if _why_not(one, wanted) else replace(one, table=_changed(one, wanted)) for one in experiment.tables]
    return replace(experiment, tables=tables)


def with_symbols(experiment: Experiment) -> Experiment:
    """The experiment with the instructions of its cells by symbol, wherever they can be proved."""
    parts = ("symbols",)
    return (
        experiment if len(unprofiled(experiment, parts)) == len(experiment.tables) else with_profile(experiment, parts)
    )


def only_profiled(experiment: Experiment) -> Experiment:
    """The experiment without the tables whose cells have no profiles."""
    return replace(experiment, tables=[one for one in experiment.tables if getattr(one.table, KEY, None)])


def unprofiled(experiment: Experiment, parts: Sequence[str]) -> Sequence[str]:
    """A sentence for each table that can have no profile of these parts."""
    reasons = {one.name: _why_not(one, tuple(dict.fromkeys(parts))) for one in experiment.tables}
    return [f"no profile of {f'table {name}' if name else 'the table'}: {why}" for name, why in reasons.items() if why]


def _why_not(one: NamedTable, parts: tuple[str, ...]) -> str | None:
    """Why a table can have no profile; None where it can."""
    benchmark = one.table.benchmark.name
    if not type(one.table).PROFILE_PARTS:
        return f"benchmark '{benchmark}' has none"
    if not _possible(one, parts):
        return f"benchmark '{benchmark}' has none of {', '.join(parts)}"
    return next((problem.sentence for problem in _changed(one, parts).conflicts() if problem.path == (KEY,)), None)


def _possible(one: NamedTable, parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part for part in parts if part in type(one.table).PROFILE_PARTS)


def _changed(one: NamedTable, parts: tuple[str, ...]) -> Table:
    return one.table.model_copy(update={KEY: _possible(one, parts)})
