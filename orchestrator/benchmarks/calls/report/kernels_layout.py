# SPDX-License-Identifier: GPL-2.0-only
"""Kernels side by side: a row for each probe, a column for each kernel, and what the others take more than the first.

For exact counts alone: every difference between them is one. Times have a table for each kernel, with their intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from orchestrator.benchmarks.calls.report.purpose_rows import purpose_meaning, purpose_names
from orchestrator.benchmarks.calls.report.wording import benchmark_title, outcomes, probe_title
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.purposes import purpose_title
from orchestrator.report.evidence import proof_lists
from orchestrator.report.figures import NOTHING, figure, unit_name
from orchestrator.report.findings import Finding, Rank
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Group, Panel, parameters
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import processors, unit_meaning
from orchestrator.results.contract import CellRecord

_APART = ("call", "workload", "at", "image", "channel", "kernel_modules")
_Figure = Callable[[CellRecord], float | None]


def is_comparable(panel: Panel) -> bool:
    """Whether a panel may stand beside one of another kernel: exact, of one kernel, and in no document's layout."""
    probes = [cell.probe for cell in panel.cells]
    return (
        panel.first.clock == "instructions"
        and not panel.references
        and len(set(probes)) == len(probes)
        and not any(panel.elsewhere(cell) for cell in panel.cells)
        and all(len(set(cell.samples)) <= 1 for cell in panel.cells)
    )


def differs_in_kernel_only(panel: Panel, group: Group) -> bool:
    """Whether the panel has the group's cells on a kernel that the group does not have."""
    if panel.first.parameters.get("at") != group[0].first.parameters.get("at"):
        return False
    return _apart(panel) == _apart(group[0]) and all(panel.kernel != other.kernel for other in group)


def _apart(panel: Panel) -> tuple[object, ...]:
    first = panel.first
    where = (first.table, first.cpu, first.smp, first.handler)
    return *where, first.benchmark, first.metric, *parameters(first, _APART)


def kernels_sheet(group: Group) -> Sheet:
    """Return comparable panels that differ in their kernels only as one table."""
    first, cells = group[0].first, [cell for panel in group for cell in panel.cells]
    footnotes = Footnotes(cells, _name, lambda _: None)
    returned = outcomes(cells, _name)
    table, at = f"{first.table}: " if first.table else "", first.parameters.get("at")
    what = f"{benchmark_title(first)} at {at}" if at else benchmark_title(first)
    return Sheet(
        title=f"Overhead of probes on {cpu(first.cpu).title}, on {len(group)} kernels",
        facts=[
            f"{table}{first.cpu}, {processors(first)}, handler {first.handler}, {what}, {first.metric} in {first.unit}",
            *(f"{panel.kernel}: linux-{release}" for panel in group if (release := _release(panel))),
            *returned.failing,
        ],
        grid=Grid(_headings(group), list(_blocks(group, footnotes)), together=1),
        sentences=[
            f"Differences are to {group[0].kernel}. {unit_meaning(group[0])}",
            *purpose_meaning(cells),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=[proofs for panel in group for proofs in proof_lists(panel.cells, _name)],
    )


def kernel_findings(group: Group) -> Iterator[Finding]:
    """The cell that differs most from that of the first kernel; that none does."""
    base, *others = [{cell.probe: cell for cell in panel.cells} for panel in group]
    differences = [
        (value - before, cell, before)
        for panel in others
        for probe, cell in panel.items()
        if (value := cell.value) is not None and probe in base and (before := base[probe].value) is not None
    ]
    if not differences:
        return
    difference, cell, before = max(differences, key=lambda one: abs(one[0]))
    place = group[0].place(group[0].first.table)
    of_place = f", {place}" if place else ""
    if not difference:
        kernels = ", ".join(panel.kernel for panel in group)
        yield Finding(Rank.DIFFERENT, f"Calls cost the same on {kernels}{f' ({place})' if place else ''}.")
        return
    share = f" ({_percent(difference, before)})" if before > 0 else ""
    more = f"{_signed(difference, cell.unit)} {unit_name(cell.unit)} a call{share}"
    sentence = f"Largest difference from {group[0].kernel} to {cell.kernel}{of_place}: {probe_title(cell)}, {more}."
    yield Finding(Rank.DIFFERENT, sentence, abs(difference) / before if before > 0 else 0.0)


def _headings(group: Group) -> list[str]:
    first, *others = [panel.kernel for panel in group]
    return [first, *(heading for kernel in others for heading in (kernel, "difference", ""))]


def _blocks(group: Group, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    unit = unit_name(group[0].first.unit)
    by_probe = [{cell.probe: cell for cell in panel.cells} for panel in group]
    probes = list(dict.fromkeys(cell.probe for panel in group for cell in panel.cells))
    rows = [[panel.get(probe) for panel in by_probe] for probe in probes]
    blank = [""] * len(_headings(group))
    yield [
        Row(f"a call({unit})", blank, "bold"),
        *(Row(_title(cells), _values(cells, lambda cell: cell.value, footnotes)) for cells in rows),
    ]
    probed = [cells for cells in rows if any(cell and cell.overhead is not None for cell in cells)]
    probed = [cells for cells in probed if _first(cells).probe != BASELINE]
    if probed:
        overheads = [Row(f"overhead({unit})", blank, "bold")]
        for cells in probed:
            overheads.append(Row(_title(cells), _values(cells, lambda cell: cell.overhead)))
            overheads += _purposes(cells)
        yield overheads


def _purposes(cells: Sequence[CellRecord | None]) -> Iterator[Row]:
    for name in purpose_names([cell for cell in cells if cell is not None]):

        def spent(cell: CellRecord, name: str = name) -> float | None:
            return cell.purposes.get(name, 0.0) if cell.purposes else None

        yield Row(f"  {purpose_title(name)}", _values(cells, spent))


def _values(cells: Sequence[CellRecord | None], value_of: _Figure, footnotes: Footnotes | None = None) -> list[str]:
    """The figures of one row: the first kernel's, and for each other one its own, the difference, and per cent."""
    base = None if cells[0] is None else value_of(cells[0])
    texts = [_shown(cells[0], base, footnotes)]
    for cell in cells[1:]:
        value = None if cell is None else value_of(cell)
        texts.append(_shown(cell, value, footnotes))
        if cell is None or value is None or base is None:
            texts += [NOTHING, NOTHING]
        else:
            difference = value - base
            texts += [_signed(difference, cell.unit), _percent(difference, base) if base > 0 else NOTHING]
    return texts


def _shown(cell: CellRecord | None, value: float | None, footnotes: Footnotes | None) -> str:
    if cell is None:
        return NOTHING
    marks = "" if footnotes is None else footnotes.marks(cell)
    return (cell.status if cell.status != "ok" else figure(value, cell.unit)) + marks


def _signed(difference: float, unit: str) -> str:
    return ("+" if difference > 0 else "") + figure(difference, unit)


def _percent(difference: float, base: float) -> str:
    return f"{100 * difference / base:+.2f} %" if difference else "0 %"


def _first(cells: Sequence[CellRecord | None]) -> CellRecord:
    return next(cell for cell in cells if cell is not None)


def _title(cells: Sequence[CellRecord | None]) -> str:
    return probe_title(_first(cells))


def _release(panel: Panel) -> str | None:
    release = panel.first.parameters.get("kernel_release")
    return None if release is None else str(release)


def _name(cell: CellRecord) -> str:
    return f"{probe_title(cell)} on {cell.kernel}"
