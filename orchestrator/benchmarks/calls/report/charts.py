# SPDX-License-Identifier: GPL-2.0-only
"""The overheads of probes on a call as bars, beside the published ones."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from orchestrator.benchmarks.calls.report.mail_layout import mail_label
from orchestrator.benchmarks.calls.report.wording import called, probe_title
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.report.chart import Bar, BarChart, Series
from orchestrator.report.figures import figure, published_figure, unit_name
from orchestrator.report.panel import Group, Panel
from orchestrator.report.published import published, published_unit
from orchestrator.report.wording import INDICATION, processors
from orchestrator.results.contract import CellRecord

_LABEL_WIDTH = 12
_EMPTY = Bar(None, "")


def list_chart(panel: Panel) -> BarChart:
    """Return the chart of a panel that is one list: a pane of measured bars, and one for each published table."""
    cells = [cell for cell in panel.cells if cell.probe != BASELINE]
    right = [
        (f"published, {unit_name(published_unit(panel.cells, table))}", _published(table, cells))
        for table in panel.references
    ]
    first = panel.first
    overheads = f"Overheads of probes on {called(first)}, {cpu(first.cpu).title}"
    title = panel.reference.figure if panel.reference else overheads
    measured = Series("", [_measured(cell) for cell in cells])
    return BarChart(
        title=title,
        subtitle=_subtitle([panel]),
        labels=[_folded(probe_title(cell)) for cell in cells],
        panes=[(_measured_axis(panel), [measured]), *((axis, [series]) for axis, series in right)],
    )


def mail_chart(group: Group) -> BarChart:
    """Return the chart of the mail's tables: a series for each, measured ones left and published ones right."""
    tables = [panel.reference for panel in group if panel.reference is not None]
    labels = list(dict.fromkeys(column for table in tables for column in table.columns))
    measured = []
    for panel in group:
        by_label = {mail_label(cell): cell for cell in panel.cells if cell.probe != BASELINE}
        bars = [_measured(by_label[label]) if label in by_label else _EMPTY for label in labels]
        measured.append(Series(panel.name, bars))
    mailed = [Series(table.name, [_mailed(table, label) for label in labels]) for table in tables]
    return BarChart(
        title=tables[0].figure,
        subtitle=_subtitle(group),
        labels=[_folded(label) for label in labels],
        panes=[(_measured_axis(group[0]), measured), (f"published, {unit_name(tables[0].unit)}", mailed)],
    )


def _published(table: str, cells: Sequence[CellRecord]) -> Series:
    overheads = [published(cell, table).overhead for cell in cells]
    return Series(table, [Bar(value, "" if value is None else published_figure(value)) for value in overheads])


def _mailed(table: ReferenceTable, label: str) -> Bar:
    if label not in table.columns:
        return _EMPTY
    return Bar(table.overhead(label), f"{table.overhead(label):.2f}")


def _measured(cell: CellRecord) -> Bar:
    if cell.overhead is None:
        return Bar(None, cell.status if cell.status != "ok" else "no baseline")
    text = figure(cell.overhead, cell.unit)
    bounds = cell.interval if cell.clock == "wall" else None
    return Bar(cell.overhead, f"{text}\nno verdict" if cell.verdict == "none" else text, bounds)


def _folded(label: str) -> str:
    """Wrap a label to the width of a bar."""
    return "\n".join(textwrap.wrap(label.replace("+", " +"), _LABEL_WIDTH))


def _measured_axis(panel: Panel) -> str:
    indication = f" ({INDICATION})" if panel.emulated else ""
    return f"measured, {unit_name(panel.first.unit)}{indication}"


def _subtitle(group: Group) -> str:
    kernels = ", ".join(dict.fromkeys(panel.kernel for panel in group))
    exceptions: dict[str, list[str]] = {}
    for panel in group:
        for cell in panel.cells:
            if panel.elsewhere(cell) and cell.probe != BASELINE:
                exceptions.setdefault(cell.probe, []).append(cell.kernel)
    kernels += "".join(f" ({probe}: {', '.join(others)})" for probe, others in exceptions.items())
    first = group[0].first
    where = f"{first.cpu}, {processors(first)}, {kernels}, handler {first.handler}"
    return f"overhead a call of {called(first)}; measured on {where}"
