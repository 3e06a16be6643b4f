# SPDX-License-Identifier: GPL-2.0-only
"""The report of benchmarks of calls: which cells share a table, what the table shows in a sentence, and its charts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import get_args

from orchestrator.benchmarks.calls import layouts
from orchestrator.benchmarks.calls.benchmarks import COUNTED_BENCHMARK, benchmarks
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, published_column
from orchestrator.plain_text import counted
from orchestrator.report.chart import Bar, BarChart, Chart, Curve, CurveChart, CurvePane, Series
from orchestrator.report.kind import (
    INDICATION,
    Panel,
    TableReport,
    file_name,
    other_kernel,
    processors,
    published,
    published_unit,
    unit_meaning,
    values_of,
)
from orchestrator.report.sheet import (
    COUNTED,
    NOTHING,
    Finding,
    Grid,
    Rank,
    Row,
    Sheet,
    cost,
    figure,
    number,
    overhead_findings,
    published_figure,
    ratio_figure,
    signed_figure,
    unit_name,
)
from orchestrator.results.contract import BACKGROUND, CellRecord, PartKind, RunPart
from orchestrator.results.parameters import (
    AT,
    CALL,
    CHANNEL,
    CONTENDED,
    IMAGE,
    IN_TURNS,
    KERNEL_MODULES,
    MOVED,
    MOVED_BY,
    ONE_LINER,
    POINTS,
    WORKLOAD,
    NumberParameter,
)
from orchestrator.results.statistics import median


def _decided(panel: Panel) -> dict[str, CellRecord]:
    """The cells that have an overhead with a verdict, by their probes."""
    return {cell.probe: cell for cell in panel.cells if cell.overhead is not None and cell.verdict is None}


_THEN, _TODAY = "djprobe", "bpf-fentry"
"""The jump of 2005, and its successor, the call of Linux 5.5 (2019): both enter the handler without a trap."""


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
    kernels += "".join(f" ({probe}: {', '.join(others)})" for probe, others in exceptions.items())
    first = panels[0].first
    where = f"{first.cpu}, {processors(first)}, {kernels}, handler {first.handler}"
    return f"overhead a call of {layouts.called(first)}; measured on {where}"


# The table of programs by system call: a row for each part of a run, columns for the baseline and each probe.


def shows_parts(panel: Panel) -> bool:
    """Whether the panel's cells run a program whose parts are counted."""
    return panel.first.benchmark == COUNTED_BENCHMARK


_PARTS: Mapping[PartKind, str] = {
    "user": "user space",
    "call": "system calls",
    "exception": "exceptions",
    "interrupt": "interrupts",
    "kernel": "rest of the kernel",
}
_OWN = [kind for kind in get_args(PartKind) if kind not in BACKGROUND]


def parts_sheet(panel: Panel) -> Sheet:
    """A run by system call: calls, instructions, and what each probe adds to them."""
    layout = layouts.Layout([panel.cells], layouts.probe_title, partial(other_kernel, panel))
    marks, others = layout.footnotes.marks, layouts.probed(panel)
    base = next((cell for cell in panel.cells if cell.probe == BASELINE), panel.first)
    headings = ["calls", "instructions", "a call", "+-"]
    headings += [text for cell in others for text in (f"{layouts.probe_title(cell)}{marks(cell)}", "+-")]
    runs, title = max(len(cell.samples) for cell in panel.cells), layouts.benchmark_title(panel.first)
    cells = [base, *others]
    return layout.sheet(
        f"A program by system call on {cpu(panel.first.cpu).title}",
        [layouts.conditions(panel), f"{title}: the median of {runs} runs, whose parts add up to it"],
        Grid(headings, list(_part_blocks(cells)), together=2, narrowest=20),
        [
            "A run is from before the fork of its first process to after its end, with all processes that it starts: "
            "the fork and the wait of what runs it are among the calls.",
            "A call of user space: its instructions between two system calls, on the mean.",
            "+-: how far runs of a guest lie apart. What a probe adds is the median of its runs less that of runs "
            "without it, right before and behind; in brackets where both kinds of run lie farther apart together.",
            "Interrupts and page faults have rows of their own, wherever they happen. Interrupts and the rest of the "
            "kernel (its threads, processes that begin) depend on when a timer ticks, and are not the program's.",
            unit_meaning(panel),
        ],
    )


def _part_blocks(cells: Sequence[CellRecord]) -> Iterator[list[Row]]:
    names: dict[PartKind, dict[str, None]] = {}
    for part in (part for cell in cells for part in _parts(cell)):
        names.setdefault(part.kind, {})[part.name] = None
    system_calls = sum(part.calls for part in _parts(cells[0]) if part.kind == "call")
    for kinds, whole, of in ((_OWN, "the program", _OWN), (BACKGROUND, "all", [*_OWN, *BACKGROUND])):
        rows = []
        for kind in kinds:
            if kind != "exception":
                rows.append(_part_row(_PARTS[kind], cells, {kind}, calls=system_calls if kind == "user" else None))
            for name in filter(None, names.get(kind, ())):
                label, depth = (name, 2) if kind == "call" else (f"{_PARTS[kind]}: {name}", 0)
                rows.append(_part_row(label, cells, {kind}, name, depth=depth))
        yield [*rows, _part_row(whole, cells, {*of}, calls=0)]


def _parts(cell: CellRecord) -> Sequence[RunPart]:
    return () if cell.profile is None else cell.profile.parts


def _part_row(
    label: str,
    cells: Sequence[CellRecord],
    kinds: Set[PartKind],
    name: str | None = None,
    *,
    depth: int = 0,
    calls: int | None = None,
) -> Row:
    """The parts of these kinds, or the one of this name; ``calls`` are others than theirs, which are not printed."""
    base, *others = (
        [part for part in _parts(cell) if part.kind in kinds and name in (None, part.name)] for cell in cells
    )
    total, own = sum(part.instructions for part in base), sum(part.calls for part in base) if calls is None else 0
    each = own if calls is None else calls
    texts = [NOTHING] * 4
    if _parts(cells[0]):
        texts = [str(own or NOTHING), str(total), number(round(total / each, 1)) if each else NOTHING]
        runs = _sums([part.runs for part in base])
        texts.append(number(max(runs) - min(runs)))
    for cell, parts in zip(cells[1:], others, strict=True):
        if not _parts(cell):
            texts += [cell.status if len(kinds) > 1 and cell.status != "ok" else NOTHING, NOTHING]
            continue
        runs, plain = _sums([part.runs for part in parts]), _sums([part.plain for part in parts])
        added, spread = median(runs) - median(plain), max(runs) - min(runs) + max(plain) - min(plain)
        text = signed_figure(added, COUNTED)
        texts += [f"({text})" if 0 < abs(added) <= spread else text, number(spread)]
    return Row(label, texts, "bold" if len(kinds) > 1 else "", depth)


def _sums(parts: Sequence[Sequence[int]]) -> Sequence[float]:
    """The instructions of each run in all of the ``parts``, each of which has its own of every run."""
    return [float(sum(run)) for run in zip(*parts, strict=True)] or [0.0]


# The table of calls on several CPUs in turns: a row for each probe and handler, a column for each number of CPUs.

_FIGURES = {
    MOVED: "lines that a call gets from other CPUs",
    CONTENDED: "accesses of a call to contended lines",
}


def shows_turns(panel: Panel) -> bool:
    """Whether CPUs make the panel's calls in turns."""
    return IN_TURNS in panel.first.parameters


class _Rows:
    """The cells of a table by row and number of CPUs; what rows have in common is not in their names."""

    def __init__(self, panels: Sequence[Panel]) -> None:
        self.cells = [cell for panel in panels for cell in panel.cells]
        self.sizes = sorted({cell.smp for cell in self.cells})
        probed = [cell for cell in self.cells if cell.probe != BASELINE]
        self._has_handlers = len({cell.handler for cell in probed}) > 1
        self._has_kernels = len({cell.kernel for cell in self.cells}) > 1
        self.by_row: dict[str, dict[int, CellRecord]] = {}
        for cell in self.cells:
            self.by_row.setdefault(self.name(cell), {}).setdefault(cell.smp, cell)
        # Each handler has a baseline of its own: all make the same calls.
        self.shown = [cell for by_size in self.by_row.values() for cell in by_size.values()]

    def name(self, cell: CellRecord) -> str:
        """The probe, with the handler and the kernel where rows differ in them."""
        handler = f", {cell.handler}" if self._has_handlers and cell.probe != BASELINE else ""
        kernel = f", {cell.kernel}" if self._has_kernels else ""
        return f"{layouts.probe_title(cell)}{handler}{kernel}"

    def curves(self, parameter: NumberParameter) -> Sequence[Curve]:
        """A curve for each row with a probe."""
        found = []
        for name, by_size in self.by_row.items():
            points = [
                (float(size), value) for size, cell in by_size.items() if (value := parameter.of(cell)) is not None
            ]
            if points and next(iter(by_size.values())).probe != BASELINE:
                found.append(Curve(name, points))
        return found


def turns_sheet(panels: Sequence[Panel]) -> Sheet:
    """Instructions of a call, and the lines that move between CPUs, by number of CPUs."""
    rows, first = _Rows(panels), panels[0].first
    parts = [[cell for cell in rows.shown if cell.smp == size] for size in rows.sizes]
    layout = layouts.Layout(parts, lambda cell: f"{rows.name(cell)}, {processors(cell)}")

    def block(title: str, text_of: Callable[[CellRecord], str]) -> list[Row]:
        def text(cell: CellRecord | None) -> str:
            if cell is None:
                return NOTHING
            return text_of(cell) if cell.status == "ok" else cell.status + layout.footnotes.marks(cell)

        by_row = rows.by_row.items()
        found = [Row(name, [text(cells.get(size)) for size in rows.sizes], depth=2) for name, cells in by_row]
        return [Row(title, [""] * len(rows.sizes), "bold"), *found]

    def counts(parameter: NumberParameter) -> Callable[[CellRecord], str]:
        return lambda cell: NOTHING if (value := parameter.of(cell)) is None else number(value)

    table = f"{first.table}: " if first.table else ""
    kernels = ", ".join(dict.fromkeys(cell.kernel for cell in rows.cells))
    return layout.sheet(
        f"Calls of {layouts.called(first)} on several CPUs of {cpu(first.cpu).title}, in turns",
        [f"{table}kernel {kernels}, {layouts.benchmark_title(first)}, a call on each CPU after the other"],
        Grid(
            [counted(size, "CPU") for size in rows.sizes],
            [
                block("instructions a call", lambda cell: figure(cell.value, cell.unit)),
                block("more than without a probe", lambda cell: figure(cell.overhead, cell.unit)),
                *(block(title, counts(parameter)) for parameter, title in _FIGURES.items()),
            ],
        ),
        [
            "A line of 64 bytes moves where a CPU accesses it after another has written to it, in caches that lose "
            "nothing else. Contended lines are those that several CPUs access and one writes: in no order of the "
            "accesses can more lines move.",
            "Each CPU makes one whole call at a time. What CPUs do that wait for each other is not in the counts, and "
            "nor is time.",
            *(
                f"Lines that {name} gets on {processors(cell)}, by who accesses them: {by}."
                for name, by_size in rows.by_row.items()
                if (by := MOVED_BY.of(cell := by_size[max(by_size)])) is not None
            ),
        ],
    )


def turns_findings(panels: Sequence[Panel]) -> Iterator[Finding]:
    """The rows that move most and fewest lines between the most CPUs."""
    rows = _Rows(panels)
    moved = {
        name: value
        for name, by_size in rows.by_row.items()
        if (cell := by_size.get(rows.sizes[-1])) and cell.probe != BASELINE and (value := MOVED.of(cell)) is not None
    }
    if moved:
        most, fewest = max(moved, key=moved.__getitem__), min(moved, key=moved.__getitem__)
        other = f"; {fewest} {number(moved[fewest])}" if moved[fewest] < moved[most] else ""
        lines = "line" if moved[most] == 1 else "lines"
        gets = f"a call with {most} gets {number(moved[most])} {lines} from other CPUs"
        sentence = f"On {counted(rows.sizes[-1], 'CPU')} {gets}{other}."
        yield Finding(Rank.LARGEST, sentence, moved[most])


def turns_chart(panels: Sequence[Panel]) -> CurveChart:
    """Both figures of lines by the number of CPUs."""
    rows, first = _Rows(panels), panels[0].first
    panes = [CurvePane("CPUs", title, rows.curves(parameter)) for parameter, title in _FIGURES.items()]
    subtitle = f"{first.cpu}, {', '.join(dict.fromkeys(cell.kernel for cell in rows.cells))}; a count, not time"
    return CurveChart(f"Lines between CPUs that call {layouts.called(first)} in turns", subtitle, panes)


class CallsReport(TableReport):
    """A table for each kernel and handler; tables of one mail stand side by side."""

    KEY_PARAMETERS = (
        CALL,
        WORKLOAD,
        AT,
        IMAGE,
        CHANNEL,
        KERNEL_MODULES,
        IN_TURNS,
    )

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
            return shows_turns(panels[0]) and _work(panel) == _work(panels[0])
        if not panel.references:
            first, other = panel.first, panels[0].first
            if (AT.of(first), first.smp, first.handler) != (AT.of(other), other.smp, other.handler):
                return False
            is_new = _work(panel) == _work(panels[0]) and all(panel.kernel != one.kernel for one in panels)
            return is_new and all(map(_is_comparable, (panel, *panels)))
        if not all(_fits_mail(one) for one in (panel, *panels)):
            return False
        another = all(panel.references != other.references for other in panels)
        return another and _shared(panel) == _shared(panels[0])

    def sheet(self, panels: Sequence[Panel]) -> Sheet:
        if shows_turns(panels[0]):
            return turns_sheet(panels)
        if _fits_mail(panels[0]):
            return layouts.mail_sheet(panels)
        if any(ONE_LINER in cell.parameters for cell in panels[0].cells) and _is_comparable(panels[0]):
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
        for panel in panels:
            own = panel.name if panel.references or len(panels) == 1 else panel.kernel
            place = panel.place(own if len(panels) > 1 or panel.first.table is not None else None)
            name = layouts.name_at_point if layouts.shows_points(panel) else layouts.probe_title
            yield from overhead_findings(panel.cells, name, place)
            yield from _ratios(panel, place)
        yield from _fifteen_years(panels)

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


def _work(panel: Panel) -> tuple[object, ...]:
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


def _shared(panel: Panel) -> tuple[object, ...]:
    first, table = panel.first, panel.reference
    document = (table.document_id, *table.columns) if table else None
    return document, first.smp, first.benchmark, first.metric, first.handler, first.clock


REPORT = CallsReport()
