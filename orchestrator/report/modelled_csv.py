# SPDX-License-Identifier: GPL-2.0-only
"""Modelled times for spreadsheets: a row for each cell."""

from __future__ import annotations

import csv
import io

from orchestrator.results.modelled import ModelledCell, ModelledRun

_IDENTITY = ("id", "table", "cpu", "kernel", "probe", "handler", "benchmark", "clock", "unit")


def render_modelled_csv(modelled: ModelledRun) -> str:
    """Return the run's modelled times as RFC 4180 text with a header line; ``error`` is relative."""
    file = io.StringIO(newline="")
    evidence = ("cost_table", "cost_table_sha256", "profile_sha256", "baseline", "baseline_profile_sha256")
    figures = ("published", "overhead", "low", "high", "error", "cycles", "role", "calibration_kernel", "reason")
    names = ["run", "experiment", *_IDENTITY, *figures, *(f"evidence.{name}" for name in evidence)]
    writer = csv.DictWriter(file, names, restval="", lineterminator="\r\n")
    writer.writeheader()
    for cell in modelled.cells:
        found = cell.evidence
        shown = {} if found is None else {f"evidence.{name}": getattr(found, name) for name in evidence}
        writer.writerow({"run": modelled.run, "experiment": modelled.experiment, **_figures(cell), **shown})
    return file.getvalue()


def _figures(cell: ModelledCell) -> dict[str, str | float]:
    low, high = cell.interval or (None, None)
    names = (*_IDENTITY, "published", "overhead", "error", "cycles", "role", "calibration_kernel", "reason")
    found = {**{name: getattr(cell, name) for name in names}, "low": low, "high": high}
    return {name: value for name, value in found.items() if value is not None}
