# SPDX-License-Identifier: GPL-2.0-only
"""bpftrace one-liners: a row for each, and for each kernel the cost of a hit and what the kernel says is attached."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from orchestrator.benchmarks.calls.tables.layout import (
    FigureOf,
    Layout,
    bpftrace_versions,
    cell_figure,
    conditions_on_kernels,
    modelled_figure,
    overhead_of,
    probe_title,
    purpose_sentences,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.kind import (
    Panel,
    times_meaning,
    unit_meaning,
)
from orchestrator.report.sheet import (
    NOTHING,
    Grid,
    Row,
    Sheet,
)
from orchestrator.results import parameters


def one_liners_sheet(panels: Sequence[Panel]) -> Sheet:
    """A panel of each kernel, side by side, with what bpftrace attaches there."""
    first, parts = panels[0].first, [panel.cells for panel in panels]
    layout = Layout(parts, lambda cell: f"{probe_title(cell)} on {cell.kernel}")
    timed = ["modelled(nsec)"] if any(panel.time(cell) for panel in panels for cell in panel.cells) else []
    width = 2 + len(timed)
    rows: dict[str, list[str]] = {}
    for index, cell in ((index, cell) for index, part in enumerate(parts) for cell in part):
        columns = rows.setdefault(probe_title(cell), [NOTHING] * (width * len(panels)))
        value_of: FigureOf = attrgetter("value") if cell.probe == BASELINE else overhead_of
        figures = [
            cell_figure(cell, value_of, layout.footnotes),
            *(modelled_figure(panels[index], cell) for _ in timed),
        ]
        columns[width * index : width * (index + 1)] = [*figures, parameters.ATTACHED.of(cell) or NOTHING]
    return layout.sheet(
        f"What bpftrace attaches, and the overhead of a hit, on {cpu(first.cpu).title}",
        [*conditions_on_kernels(panels), "the baseline's figure is a whole call's"],
        Grid(
            [
                heading
                for panel in panels
                for heading in (panel.kernel, *timed, f"attached by {bpftrace_versions(panel.cells)}")
            ],
            [[Row(title, columns) for title, columns in rows.items()]],
            together=width,
        ),
        [
            "The kernel says what is attached; its name is that of the list of probes.",
            unit_meaning(panels[0]),
            *times_meaning(panels, probe_title),
            *purpose_sentences(layout.cells, probe_title),
        ],
    )
