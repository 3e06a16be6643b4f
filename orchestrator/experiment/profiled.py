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
            raise UsageError(f"found '{part}'; {choices_sentence(part, known)}", where="--profile")
    wanted = tuple(dict.fromkeys(parts))
    tables = [_changed(one, wanted) for one in experiment.tables]
    if tables == list(experiment.tables):
        why = "a profile needs clock 'instructions', work that the clock can prove, and caches that are known"
        raise UsageError(f"no table of experiment '{experiment.name}' can have a profile", hint=why)
    return replace(experiment, tables=tables)


def _changed(one: NamedTable, parts: tuple[str, ...]) -> NamedTable:
    possible = tuple(part for part in parts if part in type(one.table).PROFILE_PARTS)
    if not possible:
        return one
    table: Table = one.table.model_copy(update={KEY: possible})
    return one if any(problem.path == (KEY,) for problem in table.conflicts()) else replace(one, table=table)
