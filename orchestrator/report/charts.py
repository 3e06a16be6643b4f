# SPDX-License-Identifier: GPL-2.0-only
"""A run as charts."""

from __future__ import annotations

from collections.abc import Container
from importlib import import_module
from pathlib import Path

from orchestrator.errors import HostError
from orchestrator.report.chart import Chart
from orchestrator.report.kind import ReportRegistry
from orchestrator.report.panels import groups
from orchestrator.results.contract import RunRecord
from orchestrator.results.faults import storage_faults

FOLDER = "charts"


def draw_charts(run: RunRecord, directory: Path, registry: ReportRegistry) -> list[Path]:
    """Draw the charts of the run's tables, as PNG and SVG in ``directory/charts``.

    Returns the files. Equal results give equal files. Raises HostError without matplotlib.
    """
    try:
        import_module("matplotlib")
    except ImportError as error:
        raise HostError(
            "charts are drawn with matplotlib, which is not installed", hint="pip install 'probe-lab[plots]'"
        ) from error
    from orchestrator.report.drawing import save

    folder = directory / FOLDER
    paths = []
    with storage_faults(folder):
        folder.mkdir(exist_ok=True)
        for name, chart in charts(run, registry).items():
            paths += save(chart, folder, name)
    return paths


def charts(run: RunRecord, registry: ReportRegistry) -> dict[str, Chart]:
    """Return the charts' content, by the names of their files."""
    found: dict[str, Chart] = {}
    for kind, group in groups(run, registry):
        for name, chart in kind.charts(group).items():
            found[_unused(name, found)] = chart
    return found


def _unused(name: str, used: Container[str]) -> str:
    number = 1
    unused = name
    while unused in used:
        number += 1
        unused = f"{name}-{number}"
    return unused
