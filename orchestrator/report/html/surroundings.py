# SPDX-License-Identifier: GPL-2.0-only
"""What a run's page has around it where it is one of many: links to the others, and charts that were drawn before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from orchestrator.report.chart import Chart
from orchestrator.report.html.chart_picture import chart_picture
from orchestrator.report.html.frame import Link


def _nowhere(cell: str) -> str | None:
    del cell
    return None


@dataclass(frozen=True)
class Surroundings:
    """``links`` lead to other pages, ``history`` gives the address of a cell's, ``remarks`` are of the whole run."""

    links: Sequence[Link] = ()
    remarks: Sequence[str] = ()
    history: Callable[[str], str | None] = _nowhere
    picture: Callable[[Chart, str], Markup] = chart_picture


ALONE = Surroundings()
"""A page by itself."""
