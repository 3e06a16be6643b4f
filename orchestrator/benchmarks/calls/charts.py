# SPDX-License-Identifier: GPL-2.0-only
"""Charts of benchmarks of calls: bars of overheads beside the published ones."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from orchestrator.benchmarks.calls.tables.layout import called, probe_title, probed
from orchestrator.benchmarks.calls.tables.mail_table import mail_label
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.chart import Bar, BarChart, Series
from orchestrator.report.figures import figure, published_figure, unit_name
from orchestrator.report.kind import (
    INDICATION,
    Panel,
    processors,
    published,
    published_unit,
)
from orchestrator.results.contract import CellRecord


def list_chart(panel: Panel) -> BarChart:
    """Bars of the overheads of one list, beside those of each published table."""
    cells = probed(panel)
    right = []
    for table in panel.references:
        overheads = [published(cell, table).overhead for cell in cells]
        bars = [Bar(value, "" if value is None else published_figure(value)) for value in overheads]
        right.append((f"published, {unit_name(published_unit(panel.cells, table))}", [Series(table, bars)]))
    first = panel.first
    title = f"Overheads of probes on {called(first)}, {cpu(first.cpu).title}"
    measured = Series("", [_bar(cell) for cell in cells])
    return BarChart(
        title=panel.reference.figure if panel.reference else title,
        subtitle=_subtitle([panel]),
        labels=[_folded(probe_title(cell)) for cell in cells],
        panes=[(_measured_axis(panel), [measured]), *right],
    )


def mail_chart(panels: Sequence[Panel]) -> BarChart:
    """Bars of the overheads of each probe and kernel of a mail, beside the published ones."""
    tables = [panel.reference for panel in panels if panel.reference is not None]
    labels = list(dict.fromkeys(column for table in tables for column in table.columns))
    measured = []
    for panel in panels:
        by_label = {mail_label(cell): cell for cell in probed(panel)}
        bars = [_bar(by_label[label]) if label in by_label else Bar(None, "") for label in labels]
        measured.append(Series(panel.name, bars))
    mailed = []
    for table in tables:
        overheads = [table.overhead(label) if label in table.columns else None for label in labels]
        bars = [Bar(value, "" if value is None else f"{value:.2f}") for value in overheads]
        mailed.append(Series(table.name, bars))
    return BarChart(
        title=tables[0].figure,
        subtitle=_subtitle(panels),
        labels=[_folded(label) for label in labels],
        panes=[(_measured_axis(panels[0]), measured), (f"published, {unit_name(tables[0].unit)}", mailed)],
    )


def _bar(cell: CellRecord) -> Bar:
    if cell.overhead is None:
        return Bar(None, cell.status if cell.status != "ok" else "no baseline")
    text = figure(cell.overhead, cell.unit)
    bounds = cell.interval if len(set(cell.interval or ())) > 1 else None
    return Bar(cell.overhead, f"{text}\nno verdict" if cell.verdict == "none" else text, bounds)


def _folded(label: str) -> str:
    return "\n".join(textwrap.wrap(label.replace("+", " +"), 12))


def _measured_axis(panel: Panel) -> str:
    indication = f" ({INDICATION})" if panel.emulated else ""
    return f"measured, {unit_name(panel.first.unit)}{indication}"


def _subtitle(panels: Sequence[Panel]) -> str:
    kernels = ", ".join(dict.fromkeys(panel.kernel for panel in panels))
    exceptions: dict[str, list[str]] = {}
    for panel in panels:
        for cell in panel.cells:
            if panel.elsewhere(cell) and cell.probe != BASELINE:
                exceptions.setdefault(cell.probe, []).append(cell.kernel)
    kernels += "".join(f" ({probe}: {', '.join(kernel_names)})" for probe, kernel_names in exceptions.items())
    first = panels[0].first
    where = f"{first.cpu}, {processors(first)}, {kernels}, handler {first.handler}"
    return f"overhead a call of {called(first)}; measured on {where}"
