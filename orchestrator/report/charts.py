# SPDX-License-Identifier: GPL-2.0-only
"""A run as charts: bars of measured and published overheads side by side, or curves over the number of probes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path

from orchestrator.benchmarks.calls.report.capability_layout import fits_abilities
from orchestrator.benchmarks.calls.report.mail_layout import fits_mail, mail_label
from orchestrator.benchmarks.markers.report.charts import marker_charts
from orchestrator.benchmarks.markers.report.layout import fits_markers
from orchestrator.benchmarks.scaling.report.charts import mass_charts
from orchestrator.benchmarks.scaling.report.growth_rows import fits_mass
from orchestrator.benchmarks.system.report.charts import macro_panes
from orchestrator.benchmarks.system.report.comparison import fits_macro
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.errors import HostError
from orchestrator.report.bars import Bar, Panes, Series
from orchestrator.report.curves import CurveChart
from orchestrator.report.figures import figure, published_figure, unit_name
from orchestrator.report.panels import Panel, panels, probe_title
from orchestrator.report.published import published, published_unit
from orchestrator.report.sheets import grouped
from orchestrator.report.wording import INDICATION, processors
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.faults import storage_faults

FOLDER = "charts"
_LABEL_WIDTH = 12


def draw_charts(run: RunRecord, directory: Path) -> list[Path]:
    """Draw a chart of each of the run's tables that has a probe, as PNG and SVG in ``directory/charts``.

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
        for name, chart in (charts(run) | curves(run)).items():
            paths += save(chart, folder, name)
    return paths


def curves(run: RunRecord) -> dict[str, CurveChart]:
    """Return what the curves show, by the name of their files."""
    found: dict[str, CurveChart] = {}
    for group in grouped(panels(run)):
        if fits_mass(group[0]):
            found |= {_unused(name, found): chart for name, chart in mass_charts(group).items()}
    return found


def charts(run: RunRecord) -> dict[str, Panes]:
    """Return what the bar charts show, by the name of their files."""
    found: dict[str, Panes] = {}
    for group in grouped(panels(run)):
        if fits_mass(group[0]):
            continue  # curves show it
        if fits_abilities(group[0]):
            continue  # yes and no are no bars
        if fits_macro(group[0]):
            macro = macro_panes(group[0])
            if macro is not None:
                found[_unused(_name(group), found)] = macro
            continue
        if fits_markers(group[0]):
            found |= {_unused(name, found): panes for name, panes in marker_charts(group[0]).items()}
            continue
        if any(cell.probe != BASELINE for panel in group for cell in panel.cells):
            found[_unused(_name(group), found)] = _mail_panes(group) if fits_mail(group[0]) else _list_panes(group[0])
    return found


def _name(group: Sequence[Panel]) -> str:
    first = group[0]
    if len(group) > 1 and first.reference is not None:
        return first.reference.document_id
    if first.first.table is not None:
        return first.first.table
    return f"{first.name}-{first.kernel}-{first.first.handler}"


def _unused(name: str, used: Iterable[str]) -> str:
    number = 1
    unused = name
    while unused in used:
        number += 1
        unused = f"{name}-{number}"
    return unused


def _list_panes(panel: Panel) -> Panes:
    cells = [cell for cell in panel.cells if cell.probe != BASELINE]
    right = [
        (f"published, {unit_name(published_unit(panel.cells, table))}", _series(table, cells, table))
        for table in panel.references
    ]
    title = panel.reference.figure if panel.reference else f"Overheads of probes on {cpu(panel.first.cpu).title}"
    measured = Series("", [_measured(cell) for cell in cells])
    return Panes(
        title=title,
        subtitle=_subtitle([panel]),
        labels=[_folded(probe_title(cell)) for cell in cells],
        panes=[(_measured_axis(panel), [measured]), *((axis, [series]) for axis, series in right)],
    )


def _mail_panes(group: Sequence[Panel]) -> Panes:
    tables = [panel.reference for panel in group if panel.reference is not None]
    labels = list(dict.fromkeys(column for table in tables for column in table.columns))
    measured = []
    for panel in group:
        by_label = {mail_label(cell): cell for cell in panel.cells if cell.probe != BASELINE}
        cells = [by_label.get(label) for label in labels]
        measured.append(Series(panel.name, [Bar(None, "") if cell is None else _measured(cell) for cell in cells]))
    told = [Series(table.name, [_told(table, label) for label in labels]) for table in tables]
    first = group[0]
    return Panes(
        title=tables[0].figure,
        subtitle=_subtitle(group),
        labels=[_folded(label) for label in labels],
        panes=[
            (_measured_axis(first), measured),
            (f"published, {unit_name(tables[0].unit)}", told),
        ],
    )


def _told(table: ReferenceTable, label: str) -> Bar:
    if label not in table.columns:
        return Bar(None, "")
    return Bar(table.overhead(label), f"{table.overhead(label):.2f}")


def _folded(label: str) -> str:
    """Break a label where its words allow, to the width of a bar."""
    return "\n".join(textwrap.wrap(label.replace("+", " +"), _LABEL_WIDTH))


def _measured_axis(panel: Panel) -> str:
    indication = f" ({INDICATION})" if panel.emulated else ""
    return f"measured, {unit_name(panel.first.unit)}{indication}"


def _subtitle(group: Sequence[Panel]) -> str:
    kernels = ", ".join(dict.fromkeys(panel.kernel for panel in group))
    exceptions: dict[str, list[str]] = {}
    for panel in group:
        for cell in panel.cells:
            if panel.elsewhere(cell) and cell.probe != BASELINE:
                exceptions.setdefault(cell.probe, []).append(cell.kernel)
    kernels += "".join(f" ({probe}: {', '.join(others)})" for probe, others in exceptions.items())
    first = group[0].first
    return f"overhead a call; measured on {first.cpu}, {processors(first)}, {kernels}, handler {first.handler}"


def _measured(cell: CellRecord) -> Bar:
    if cell.overhead is None:
        return Bar(None, cell.status if cell.status != "ok" else "no baseline")
    text = figure(cell.overhead, cell.unit)
    bounds = cell.interval if cell.clock == "wall" else None
    return Bar(cell.overhead, f"{text}\nno verdict" if cell.verdict == "none" else text, bounds)


def _series(name: str, cells: Sequence[CellRecord | None], table: str) -> Series:
    overheads = [None if cell is None else published(cell, table).overhead for cell in cells]
    return Series(name, [Bar(value, "" if value is None else published_figure(value)) for value in overheads])
