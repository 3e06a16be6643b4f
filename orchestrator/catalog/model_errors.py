# SPDX-License-Identifier: GPL-2.0-only
"""Why modelled times miss published figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pydantic import TypeAdapter

from orchestrator.catalog.data import Fact, read

LARGE = 0.15
"""The relative error from which a reason is due."""


class ErrorReason(Fact):
    """The reason for the errors of some columns of one published table."""

    columns: list[str]
    reason: str


@lru_cache(maxsize=1)
def _reasons() -> dict[str, list[ErrorReason]]:
    return TypeAdapter(dict[str, list[ErrorReason]]).validate_python(read("model_errors.yaml"))


def error_reasons(table: str) -> Sequence[ErrorReason]:
    """The known reasons for one published table, by its id."""
    return _reasons().get(table, [])
