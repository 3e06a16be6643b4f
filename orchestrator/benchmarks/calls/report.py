# SPDX-License-Identifier: GPL-2.0-only
"""The report of benchmarks of calls: which cells share a table, what the table shows in a sentence, and its charts."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable, Iterator, Mapping, Sequence

from orchestrator.benchmarks.calls import layouts
from orchestrator.benchmarks.calls.benchmarks import benchmarks
from orchestrator.benchmarks.calls.parts_sheet import parts_sheet, shows_parts
from orchestrator.benchmarks.calls.turns_sheet import shows_turns, turns_chart, turns_findings, turns_sheet
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, published_column
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.kind import (
    INDICATION,
    Panel,
    TableReport,
    file_name,
    processors,
    published,
    published_unit,
    values_of,
)
from orchestrator.report.sheet import (
    NOTHING,
    Finding,
    Rank,
    Sheet,
    cost,
    figure,
    overhead_findings,
    published_figure,
    ratio_figure,
    signed_figure,
    unit_name,
)
from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import AT, CALL, CHANNEL, IMAGE, IN_TURNS, KERNEL_MODULES, POINTS, WORKLOAD


def _decided(panel: Panel) -> dict[str, CellRecord]:
    """The cells that have an overhead with a verdict, by their probes."""
    return {cell.probe: cell for cell in panel.cells if cell.overhead is not None and cell.verdict is None}


_THEN, _TODAY = "djprobe", "bpf-fentry"
"""The jump of 2005, and its successor, the call of Linux 5.5 (2019): both enter the handler without a trap."""


def _call_findings(panels: Sequence[Panel]) -> Iterator[Finding]:
    names = [panel.name if panel.references or len(panels) == 1 else panel.kernel for panel in panels]
    for name_of_panel, panel in zip(names, panels, strict=True):
        place = panel.place(name_of_panel if len(panels) > 1 or panel.first.table is not None else None)
        name = layouts.name_at_point if layouts.shows_points(panel) else layouts.probe_title
        yield from overhead_findings(panel.cells, name, place)
        yield from _ratios(panel, place)
    yield from _fifteen_years(panels)


def _ratios(panel: Panel, place: str) -> Iterator[Finding]:
    table = panel.reference
    if table is None:
        return
    decided = _decided(panel)
    base = next((cell for cell in decided.values() if published_column(cell.probe) == table.compared_with), None)
    others = [cell for probe, cell in decided.items() if probe != BASELINE and cell is not base]
    if base is None or base.overhead is None or base.overhead <= 0 or not others:
        return
    largest = max(others, key=lambda cell: cell.overhead or 0.0)
    times = [panel.time(cell) for cell in (largest, base)]
    figures = [None if one is None else one.overhead for one in times]
    is_fit = all(one is not None and one.is_fit for one in times)
    in_time = f" in modelled time{' (fit)' if is_fit else ''}" if all(figures) else ""
    measured = ratio_figure(*figures) if in_time else ratio_figure(largest.overhead, base.overhead)
    documented = ratio_figure(published(largest, table.id).overhead, published(base, table.id).overhead)
    beside = "" if documented == NOTHING else f"; published: {documented}"
    of_place = f", in {place}" if place else ""
    both = f"{layouts.probe_title(largest)} to {layouts.probe_title(base)}"
    sentence = f"Ratio of {both}{of_place}{in_time}: {measured}{beside}."
    yield Finding(Rank.PUBLISHED, sentence, (largest.overhead or 0.0) / base.overhead)


def _fifteen_years(panels: Sequence[Panel]) -> Iterator[Finding]:
    """The overhead of djprobe (2005) beside that of fentry (2019), with handlers that do nothing, by kernel."""
    pairs = []
    for panel in panels:
        decided = _decided(panel)
        then, today = decided.get(_THEN), decided.get(_TODAY)
        if then is not None and today is not None and panel.first.handler == "noop" and not layouts.shows_points(panel):
            pairs.append(f"{figure(then.overhead, then.unit)} to {cost(today)} on {panel.kernel}")
    if pairs:
        sentence = f"What fifteen years brought, from djprobe (2005) to BPF on fentry (2019): {', '.join(pairs)}."
        yield Finding(Rank.PUBLISHED, sentence)


def _kernel_findings(panels: Sequence[Panel]) -> Iterator[Finding]:
    base, *others = [{cell.probe: cell for cell in panel.cells} for panel in panels]
    differences = [
        (value - before, cell, before)
        for panel in others
        for probe, cell in panel.items()
        if (value := cell.value) is not None and probe in base and (before := base[probe].value) is not None
    ]
    if not differences:
        return
    difference, cell, before = max(differences, key=lambda one: abs(one[0]))
    place = panels[0].place(panels[0].first.table)
    of_place = f", {place}" if place else ""
    if not difference:
        kernels = ", ".join(panel.kernel for panel in panels)
        yield Finding(Rank.DIFFERENT, f"Calls cost the same on {kernels}{f' ({place})' if place else ''}.")
        return
    share = f" ({layouts.percent_of(difference, before)})" if before > 0 else ""
    more = f"{signed_figure(difference, cell.unit)} {unit_name(cell.unit)} a call{share}"
    sentence = (
        f"Largest difference from {panels[0].kernel} to {cell.kernel}{of_place}: {layouts.probe_title(cell)}, {more}."
    )
    yield Finding(Rank.DIFFERENT, sentence, abs(difference) / before if before > 0 else 0.0)


def _list_chart(panel: Panel) -> BarChart:
    cells = layouts.probed(panel)
    right = []
    for table in panel.references:
        overheads = [published(cell, table).overhead for cell in cells]
        bars = [Bar(value, "" if value is None else published_figure(value)) for value in overheads]
        right.append((f"published, {unit_name(published_unit(panel.cells, table))}", [Series(table, bars)]))
    first = panel.first
    title = f"Overheads of probes on {layouts.called(first)}, {cpu(first.cpu).title}"
    measured = Series("", [_bar(cell) for cell in cells])
    return BarChart(
        title=panel.reference.figure if panel.reference else title,
        subtitle=_subtitle([panel]),
        labels=[_folded(layouts.probe_title(cell)) for cell in cells],
        panes=[(_measured_axis(panel), [measured]), *right],
    )


def _mail_chart(panels: Sequence[Panel]) -> BarChart:
    tables = [panel.reference for panel in panels if panel.reference is not None]
    labels = list(dict.fromkeys(column for table in tables for column in table.columns))
    measured = []
    for panel in panels:
        by_label = {layouts.mail_label(cell): cell for cell in layouts.probed(panel)}
        bars = [_bar(by_label[label]) if label in by_label else Bar(None, "") for label in labels]
        measured.append(Series(panel.name, bars))
    mailed = [Series(table.name, [_mailed(table, label) for label in labels]) for table in tables]
    return BarChart(
        title=tables[0].figure,
        subtitle=_subtitle(panels),
        labels=[_folded(label) for label in labels],
        panes=[(_measured_axis(panels[0]), measured), (f"published, {unit_name(tables[0].unit)}", mailed)],
    )


def _mailed(table: ReferenceTable, label: str) -> Bar:
    return Bar(table.overhead(label), f"{table.overhead(label):.2f}") if label in table.columns else Bar(None, "")


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
    kernels += "".join(f" ({probe}: {', '.join(others)})" for probe, others in exceptions.items())
    first = panels[0].first
    where = f"{first.cpu}, {processors(first)}, {kernels}, handler {first.handler}"
    return f"overhead a call of {layouts.called(first)}; measured on {where}"


class CallsReport(TableReport):
    """A table for each kernel and handler; tables of one mail stand side by side."""

    KEY_PARAMETERS = (CALL, WORKLOAD, AT, IMAGE, CHANNEL, KERNEL_MODULES, IN_TURNS)

    def handles(self, benchmark: str) -> bool:
        return benchmark in benchmarks()

    def group_key(self, cell: CellRecord) -> Hashable:
        if POINTS in cell.parameters:
            return cell.handler, *values_of(cell, [POINTS, *(name for name in self.KEY_PARAMETERS if name != AT)])
        return super().group_key(cell)

    def same_table(self, panel: Panel, panels: Sequence[Panel]) -> bool:
        """Whether they differ only in the kernel, or are different tables of one document in the form of a mail."""
        # The cheapest test comes first: a run of 1000 points has half a million pairs of panels.
        if shows_turns(panel):
            return shows_turns(panels[0]) and _call_in_turns(panel) == _call_in_turns(panels[0])
        if not panel.references:
            return _differs_in_kernel_only(panel, panels) and all(map(_is_comparable, (panel, *panels)))
        if not all(_fits_mail(one) for one in (panel, *panels)):
            return False
        another = all(panel.references != other.references for other in panels)
        return another and _shared(panel) == _shared(panels[0])

    def sheet(self, panels: Sequence[Panel]) -> Sheet:
        if shows_turns(panels[0]):
            return turns_sheet(panels)
        if _fits_mail(panels[0]):
            return layouts.mail_sheet(panels)
        if layouts.shows_one_liners(panels[0]) and _is_comparable(panels[0]):
            return layouts.one_liners_sheet(panels)
        if len(panels) > 1:
            return layouts.kernels_sheet(panels)
        (panel,) = panels
        if layouts.shows_points(panel):
            return layouts.points_sheet(panel)
        if shows_parts(panel):
            return parts_sheet(panel)
        return layouts.capability_sheet(panel) if layouts.shows_capabilities(panel) else layouts.list_sheet(panel)

    def findings(self, panels: Sequence[Panel]) -> Iterator[Finding]:
        if shows_turns(panels[0]):
            yield from turns_findings(panels)
            return
        if layouts.shows_capabilities(panels[0]):
            sentence = layouts.deviations(layouts.probed(panels[0]))
            if sentence is not None:
                rank = Rank.CONTRADICTED if sentence.startswith("Different") else Rank.PUBLISHED
                yield Finding(rank, f"{layouts.CAPABILITIES_TITLE}: {sentence}")
            return
        if len(panels) > 1 and _is_comparable(panels[0]):
            yield from _kernel_findings(panels)
        yield from _call_findings(panels)

    def charts(self, panels: Sequence[Panel]) -> Mapping[str, Chart]:
        if (
            layouts.shows_capabilities(panels[0])
            or layouts.shows_points(panels[0])
            or not any(map(layouts.probed, panels))
        ):
            return {}
        if shows_turns(panels[0]):
            return {file_name(panels[:1]): turns_chart(panels)}
        if _fits_mail(panels[0]):
            return {file_name(panels): _mail_chart(panels)}
        names = [f"{file_name([panel])}-{panel.kernel}" if len(panels) > 1 else file_name(panels) for panel in panels]
        return {name: _list_chart(panel) for name, panel in zip(names, panels, strict=True)}


def _call_in_turns(panel: Panel) -> tuple[object, ...]:
    first = panel.first
    return first.table, first.cpu, first.benchmark, first.metric, *values_of(first, CallsReport.KEY_PARAMETERS)


def _fits_mail(panel: Panel) -> bool:
    """Whether the panel is compared with a table of the mail's layout, and has no probe twice."""
    probes = [cell.probe for cell in layouts.probed(panel)]
    return panel.reference is not None and panel.reference.layout == "mail" and len(set(probes)) == len(probes)


def _is_comparable(panel: Panel) -> bool:
    """Whether it can be printed beside another kernel's panel: exact, of one kernel, and in no document's layout."""
    probes = [cell.probe for cell in panel.cells]
    return (
        panel.first.clock == "instructions"
        and not panel.references
        and len(set(probes)) == len(probes)
        and not any(panel.elsewhere(cell) for cell in panel.cells)
        and all(len(set(cell.samples)) <= 1 for cell in panel.cells)
        and not layouts.shows_capabilities(panel)
        and not layouts.shows_points(panel)
        and not shows_parts(panel)
    )


def _differs_in_kernel_only(panel: Panel, panels: Sequence[Panel]) -> bool:
    """Whether the panel has the same cells as ``panels``, on a kernel that these do not have."""

    def shared(one: Panel) -> tuple[object, ...]:
        first = one.first
        own = (first.table, first.cpu, first.smp, first.handler, first.benchmark, first.metric)
        return *own, *values_of(first, CallsReport.KEY_PARAMETERS)

    if AT.of(panel.first) != AT.of(panels[0].first):
        return False
    return shared(panel) == shared(panels[0]) and all(panel.kernel != other.kernel for other in panels)


def _shared(panel: Panel) -> tuple[object, ...]:
    first, table = panel.first, panel.reference
    document = (table.document_id, *table.columns) if table else None
    return document, first.smp, first.benchmark, first.metric, first.handler, first.clock


REPORT = CallsReport()
