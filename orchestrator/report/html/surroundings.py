# SPDX-License-Identifier: GPL-2.0-only
"""What a run's page has around it where it is one of many: links to the others, and charts that were drawn before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from orchestrator.report.chart import Chart
from orchestrator.report.html.frame import Link
from orchestrator.report.html.inline_picture import inline_picture


def drawn(chart: Chart, name: str) -> Markup:
    """Draw a chart as an element whose ids begin with ``name``, by matplotlib."""
    from orchestrator.report.drawing import svg_text

    return inline_picture(svg_text(chart), name, chart.title, chart.subtitle)


def _nowhere(cell: str) -> str | None:
    del cell
    return None


@dataclass(frozen=True)
class Surroundings:
    """``links`` lead to other pages, ``history`` gives the address of a cell's, ``remarks`` are of the whole run."""

    links: Sequence[Link] = ()
    remarks: Sequence[str] = ()
    history: Callable[[str], str | None] = _nowhere
    picture: Callable[[Chart, str], Markup] = drawn


ALONE = Surroundings()
"""A page by itself."""
