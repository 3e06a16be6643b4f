# SPDX-License-Identifier: GPL-2.0-only
"""Baselines: names for runs that others are compared with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.catalog.spelling import unknown
from orchestrator.errors import UsageError
from orchestrator.program import PROGRAM

LATEST = "latest"
DEFAULT = "default"
"""The baseline that a run is compared with where no other is named."""

_LONGEST = 80
_NAME = re.compile(rf"[a-z][a-z0-9-]{{0,{_LONGEST - 1}}}")


@dataclass(frozen=True)
class Baseline:
    """A name, the id of its run, and since when it is that run's (ISO 8601, UTC)."""

    name: str
    run: str
    since: str


def is_baseline_name(name: str) -> bool:
    """Whether a baseline may be called so: no run's id begins like it, since an id begins with its year."""
    return name != LATEST and _NAME.fullmatch(name) is not None


def check_baseline_name(name: str) -> None:
    """Raise UsageError for what is no name of a baseline."""
    if not is_baseline_name(name):
        short = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
        shown = short if short.isprintable() else ascii(short)[1:-1]
        hint = (
            f"a small letter, then small letters, digits and hyphens, at most {_LONGEST} in all: before-the-patch; "
            "'latest' is the newest run"
        )
        raise UsageError(f"'{shown}' is no name for a baseline", hint=hint)


def unknown_baseline(name: str, known: Mapping[str, Baseline]) -> UsageError:
    """The error for a baseline that is not there."""
    if not known:
        return UsageError(f"unknown baseline '{name}'", hint=f"there is none yet: {PROGRAM} baseline set NAME RUN")
    return UsageError(unknown("baseline", name, known))
