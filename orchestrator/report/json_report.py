# SPDX-License-Identifier: GPL-2.0-only
"""A run for programs: the result contract as JSON."""

from __future__ import annotations

from orchestrator.results.contract import RunRecord, json_text


def render_json(run: RunRecord) -> str:
    """Return the result contract of ``run``, ready to be written to standard output as it is."""
    return json_text(run)
