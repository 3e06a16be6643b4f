# SPDX-License-Identifier: GPL-2.0-only
"""The table of points: a row for each point, with a probe's overhead there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from orchestrator.benchmarks.calls.tables.layout import (
    Layout,
    called,
    cell_figure,
    conditions,
    modelled_figure,
    probe_title,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.columns import Column, Columns
from orchestrator.report.figures import NOTHING, number
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import (
    CellGroup,
    other_kernel,
    times_meaning,
    unit_meaning,
)
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord


def shows_points(group: CellGroup) -> bool:
    """Whether the lab found the group's points: the functions that calls enter, or the instructions of one."""
    return parameters.POINTS in group.first.parameters


def points_sheet(group: CellGroup) -> Sheet:
    """A row for each point, a column for each probe."""
    at_points: dict[str, dict[str, CellRecord]] = {}
    for cell in group.cells:
        at_points.setdefault(_at(cell), {})[cell.probe] = cell
    by_point = {at: by_probe for at, by_probe in at_points.items() if BASELINE in by_probe}
    cells = [cell for cell in group.cells if _at(cell) in by_point]
    refused: dict[str, dict[str, None]] = {}
    for cell in group.cells:
        if _at(cell) not in by_point:
            refused.setdefault(cell.reason or cell.status, {})[_at(cell)] = None
    layout, function = Layout([cells], _name_of_reason, partial(other_kernel, group)), _function(group.first)
    names = {cell.probe: probe_title(cell) for cell in cells if cell.probe != BASELINE}
    entered = f"{'entered' if function is None else 'executed'} by a call"
    counted = Columns(
        [
            Column(entered, _hits),
            *_by_probe(names, lambda cell: cell_figure(cell, footnotes=layout.footnotes)),
        ]
    )
    modelled = Columns(
        [Column(entered, lambda _: NOTHING), *_by_probe(names, lambda cell: modelled_figure(group, cell))]
    )
    rows = [counted.row(at, by_probe) for at, by_probe in by_point.items()]
    timed = [
        modelled.row(at, by_probe, "italic")
        for at, by_probe in by_point.items()
        if any(group.time(cell) for cell in by_probe.values())
    ]
    shown = " or ".join(
        map(number, sorted({cell.value for cell in cells if cell.probe == BASELINE and cell.value is not None}))
    )
    calls = f"a call of {called(group.first)}"
    each = f"function that {calls} enters" if function is None else f"instruction of {function} in {calls}"
    return layout.sheet(
        f"Overhead of probes on {cpu(group.first.cpu).title}, at each {each}",
        [conditions(group), *([f"a call takes {shown} instructions without a probe"] if shown else [])],
        counted.grid(
            rows or [counted.row("no function", {})],
            [modelled.title("modelled(nsec)", "bold italic"), *timed] if timed else (),
        ),
        [
            unit_meaning(group),
            *times_meaning([group], name_at_point),
            *(f"Not probed: {', '.join(functions)}: {reason}." for reason, functions in refused.items()),
        ],
    )


_AtPoint = Mapping[str, CellRecord]
"""The cells of a point by their probes."""


def _by_probe(names: Mapping[str, str], text: Callable[[CellRecord | None], str]) -> Iterator[Column[_AtPoint]]:
    def of_probe(probe: str) -> Callable[[_AtPoint], str]:
        return lambda cells: text(cells.get(probe))

    yield from (Column(name, of_probe(probe)) for probe, name in names.items())


def _hits(by_probe: _AtPoint) -> str:
    proofs = [cell.evidence for cell in by_probe.values() if cell.probe != BASELINE and cell.evidence is not None]
    return str(proofs[0].hits_per_call) if proofs else NOTHING


def _at(cell: CellRecord) -> str:
    return parameters.AT.of(cell) or ""


def _name_of_reason(cell: CellRecord) -> str:
    # Many instructions share one reason.
    is_one_of_many = cell.status == "unsupported" and _function(cell) is not None
    return probe_title(cell) if cell.status == "ok" or is_one_of_many else name_at_point(cell)


def name_at_point(cell: CellRecord) -> str:
    """The cell's probe and point, for tables of points."""
    return f"{probe_title(cell)} at {_at(cell)}"


def _function(cell: CellRecord) -> str | None:
    """The function whose instructions are probed; None where each point is a function."""
    function, each, _ = (parameters.POINTS.of(cell) or "").partition("+*")
    return function if each else None
