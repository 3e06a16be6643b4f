# SPDX-License-Identifier: GPL-2.0-only
"""A night for a webhook, as JSON. The key ``text`` is what Mattermost and Slack show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.report.export import first_line
from orchestrator.report.night_words import against, states, subject, word
from orchestrator.results.night import Night

_LISTED = 20


def night_json(night: Night) -> Mapping[str, Any]:
    """What a server gets: at most 20 cells of each kind; ``counts`` has how many there are."""
    comparison = None if night.compared is None else night.compared.comparison
    return {
        "text": f"{subject(night)}\n{against(night)}",
        "night": word(night),
        "experiment": night.experiment,
        "run": night.run.record.run,
        "compared_with": None if night.compared is None else night.compared.before.record.run,
        "cells": dict(states(night)),
        "counts": {} if comparison is None else dict(comparison.counts),
        "beyond": [
            {"cell": one.pair.title, "change": one.change, "why": list(one.beyond)} for one in night.beyond[:_LISTED]
        ],
        "failed": [{"cell": cell.id, "reason": first_line(cell)} for cell in night.failed[:_LISTED]],
        "problems": list(night.problems),
    }


def unmeasured_json(experiment: str, reason: str) -> Mapping[str, Any]:
    """What a server gets of a night that has measured nothing."""
    text = f"[{experiment}] not measured\n{reason}"
    return {"text": text, "night": "not measured", "experiment": experiment, "problems": [reason]}
