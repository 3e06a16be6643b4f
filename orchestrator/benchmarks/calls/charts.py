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
from orchestrator.report.table_report import (
    INDICATION,
    CellGroup,
    processors,
    published,
    published_unit,
)
from orchestrator.results.contract import CellRecord


def list_chart(group: CellGroup) -> BarChart:
    """Bars of the overheads of one list, beside those of each published table."""
    cells = probed(group)
    right = []
    for table in group.references:
        overheads = [published(cell, table).overhead for cell in cells]
        bars = [Bar(value, "" if value is None else published_figure(value)) for value in overheads]
        right.append((f"published, {unit_name(published_unit(group.cells, table))}", [Series(table, bars)]))
    first = group.first
    title = f"Overheads of probes on {called(first)}, {cpu(first.cpu).title}"
    measured = Series("", [_bar(cell) for cell in cells])
    return BarChart(
        title=group.reference.figure if group.reference else title,
        subtitle=_subtitle([group]),
        labels=[_folded(probe_title(cell)) for cell in cells],
        panes=[(_measured_axis(group), [measured]), *right],
    )


def kernels_chart(groups: Sequence[CellGroup]) -> BarChart:
    """Bars of the overheads of each probe, of a colour for each kernel."""
    by_probe = [{probe_title(cell): cell for cell in probed(group)} for group in groups]
    labels = list(dict.fromkeys(title for cells in by_probe for title in cells))
    first = groups[0].first
    return BarChart(
        title=f"Overheads of probes on {called(first)}, {cpu(first.cpu).title}",
        subtitle=_subtitle(groups),
        labels=[_folded(label) for label in labels],
        panes=[
            (
                _measured_axis(groups[0]),
                [
                    Series(group.kernel, [_bar(cells[label]) if label in cells else Bar(None, "") for label in labels])
                    for group, cells in zip(groups, by_probe, strict=True)
                ],
            )
        ],
    )


def mail_chart(groups: Sequence[CellGroup]) -> BarChart:
    """Bars of the overheads of each probe and kernel of a mail, beside the published ones."""
    tables = [group.reference for group in groups if group.reference is not None]
    labels = list(dict.fromkeys(column for table in tables for column in table.columns))
    measured = []
    for group in groups:
        by_label = {mail_label(cell): cell for cell in probed(group)}
        bars = [_bar(by_label[label]) if label in by_label else Bar(None, "") for label in labels]
        measured.append(Series(group.name, bars))
    mailed = []
    for table in tables:
        overheads = [table.overhead(label) if label in table.columns else None for label in labels]
        bars = [Bar(value, "" if value is None else f"{value:.2f}") for value in overheads]
        mailed.append(Series(table.name, bars))
    return BarChart(
        title=tables[0].figure,
        subtitle=_subtitle(groups),
        labels=[_folded(label) for label in labels],
        panes=[(_measured_axis(groups[0]), measured), (f"published, {unit_name(tables[0].unit)}", mailed)],
    )


def _bar(cell: CellRecord) -> Bar:
    if cell.overhead is None:
        return Bar(None, cell.status if cell.status != "ok" else "no baseline")
    text = figure(cell.overhead, cell.unit)
    bounds = cell.interval if len(set(cell.interval or ())) > 1 else None
    return Bar(cell.overhead, f"{text}\nno verdict" if cell.verdict == "none" else text, bounds)


def _folded(label: str) -> str:
    return "\n".join(textwrap.wrap(label.replace("+", " +"), 12))


def _measured_axis(group: CellGroup) -> str:
    indication = f" ({INDICATION})" if group.emulated else ""
    return f"measured, {unit_name(group.first.unit)}{indication}"


def _subtitle(groups: Sequence[CellGroup]) -> str:
    kernels = ", ".join(dict.fromkeys(group.kernel for group in groups))
    exceptions: dict[str, list[str]] = {}
    for group in groups:
        for cell in group.cells:
            if group.elsewhere(cell) and cell.probe != BASELINE:
                exceptions.setdefault(cell.probe, []).append(cell.kernel)
    kernels += "".join(f" ({probe}: {', '.join(kernel_names)})" for probe, kernel_names in exceptions.items())
    first = groups[0].first
    where = f"{first.cpu}, {processors(first)}, {kernels}, handler {first.handler}"
    return f"overhead a call of {called(first)}; measured on {where}"
