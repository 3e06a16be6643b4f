# SPDX-License-Identifier: GPL-2.0-only
"""A chart as a part of a page."""

from __future__ import annotations

from importlib.util import find_spec

from markupsafe import Markup

from orchestrator.report.chart import Chart
from orchestrator.report.html.inline_picture import inline_picture

NOT_DRAWN = "Charts are drawn with matplotlib, which is not installed: pip install 'probe-lab[plots]'"


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def chart_picture(chart: Chart, name: str) -> Markup:
    """Return the chart as an element whose ids begin with ``name``; matplotlib must be there."""
    from orchestrator.report.drawing import svg_text

    return inline_picture(svg_text(chart), name, chart.title, chart.subtitle)
