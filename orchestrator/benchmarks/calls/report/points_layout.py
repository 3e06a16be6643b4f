# SPDX-License-Identifier: GPL-2.0-only
"""A table of all functions that calls enter: a row for each, with the overhead of each probe there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.benchmarks.calls.report.wording import called, conditions, outcomes, probe_title
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.evidence import proof_lists
from orchestrator.report.figures import NOTHING, figure, number
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Panel
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import other_kernel, unit_meaning
from orchestrator.results.contract import CellRecord


def shows_points(panel: Panel) -> bool:
    """Whether the panel's points were found: the functions that calls enter, or the instructions of one."""
    return "points" in panel.first.parameters


def points_sheet(panel: Panel) -> Sheet:
    """Return the panel with its functions as rows and its probes as columns."""
    probed = {_at(cell) for cell in panel.cells if cell.probe == BASELINE}
    cells = [cell for cell in panel.cells if _at(cell) in probed]
    refused = [cell for cell in panel.cells if _at(cell) not in probed]
    footnotes = Footnotes(cells, _name, lambda cell: other_kernel(panel, cell))
    returned = outcomes(cells, _name)
    return Sheet(
        title=f"Overhead of probes on {cpu(panel.first.cpu).title}, at each {_points(panel)}",
        facts=[conditions(panel), *_baseline(cells), *returned.failing],
        grid=_grid(cells, footnotes, "entered" if _function(panel.first) is None else "executed"),
        sentences=[unit_meaning(panel), *_refused(refused), *returned.others],
        footnotes=footnotes.all(),
        proofs=proof_lists(cells, _name),
    )


def _grid(cells: Sequence[CellRecord], footnotes: Footnotes, reached: str) -> Grid:
    probes = {cell.probe: probe_title(cell) for cell in cells if cell.probe != BASELINE}
    by_point: dict[str, dict[str, CellRecord]] = {}
    for cell in cells:
        by_point.setdefault(_at(cell), {})[cell.probe] = cell
    rows = [
        Row(at, [_hits(by_probe), *(_figure(by_probe.get(probe), footnotes) for probe in probes)])
        for at, by_probe in by_point.items()
    ]
    headings = [f"{reached} by a call", *probes.values()]
    return Grid(headings, [rows or [Row("no function", [NOTHING] * len(headings))]])


def _hits(by_probe: Mapping[str, CellRecord]) -> str:
    """How often a call enters the function or executes the instruction, as the hits prove."""
    for cell in by_probe.values():
        if cell.probe != BASELINE and cell.evidence is not None:
            return str(cell.evidence.hits_per_call)
    return NOTHING


def _figure(cell: CellRecord | None, footnotes: Footnotes) -> str:
    if cell is None:
        return NOTHING
    return (cell.status if cell.status != "ok" else figure(cell.overhead, cell.unit)) + footnotes.marks(cell)


def _baseline(cells: Sequence[CellRecord]) -> Iterator[str]:
    values = {cell.value for cell in cells if cell.probe == BASELINE and cell.value is not None}
    if values:
        shown = " or ".join(number(value) for value in sorted(values))
        yield f"a call takes {shown} instructions without a probe"


def _refused(cells: Sequence[CellRecord]) -> Iterator[str]:
    """A sentence for each reason why functions were not probed."""
    by_reason: dict[str, dict[str, None]] = {}
    for cell in cells:
        by_reason.setdefault(cell.reason or cell.status, {})[_at(cell)] = None
    for reason, functions in by_reason.items():
        yield f"Not probed: {', '.join(functions)}: {reason}."


def _points(panel: Panel) -> str:
    function, calls = _function(panel.first), f"a call of {called(panel.first)}"
    return f"function that {calls} enters" if function is None else f"instruction of {function} in {calls}"


def _at(cell: CellRecord) -> str:
    return str(cell.parameters.get("at"))


def _name(cell: CellRecord) -> str:
    # Most reasons are those of many instructions.
    is_one_of_many = cell.status == "unsupported" and _function(cell) is not None
    return probe_title(cell) if cell.status == "ok" or is_one_of_many else f"{probe_title(cell)} at {_at(cell)}"


def _function(cell: CellRecord) -> str | None:
    """The function whose instructions are probed; None where functions are."""
    function, each, _ = str(cell.parameters["points"]).partition("+*")
    return function if each else None
