# SPDX-License-Identifier: GPL-2.0-only
"""How a run's benchmarks of calls are printed: as lists of 2005, as the mail's tables of 2009, or as List 15."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from orchestrator.benchmarks.calls.benchmarks import SHOWN_FOR, ListRow, capability_list, capability_names
from orchestrator.benchmarks.calls.layouts import (
    called,
    comparison_meaning,
    conditions,
    differs_in_kernel_only,
    heading,
    is_comparable,
    kernel_findings,
    kernels_sheet,
    list_sheet,
    outcomes,
    points_sheet,
    probe_title,
    purpose_sentences,
    shows_points,
)
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, probes
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.kind import (
    INDICATION,
    Group,
    Panel,
    by_kernel,
    file_name,
    other_kernel,
    parameters,
    processors,
    published,
    published_unit,
    source,
)
from orchestrator.report.sheet import (
    NOTHING,
    UNDECIDED,
    Finding,
    Footnotes,
    Grid,
    Rank,
    Row,
    Sheet,
    cost,
    figure,
    overhead_findings,
    proof_lists,
    published_figure,
    ratio_figure,
    unit_name,
)
from orchestrator.results.contract import CellRecord

# What tables of calls show: the largest overhead, and how many times that of the optimised probe it is.

_COMPARED_WITH = {"list": "djprobe", "mail": "kprobe-optimized"}
"""The probe that a document compares the others with, by the layout of its tables."""
_THEN, _TODAY = "djprobe", "bpf-fentry"
"""The jump of 2005, and the call of Linux 5.5 (2019) that took its place: each enters the handler without a trap."""


def call_findings(group: Group) -> Iterator[Finding]:
    """The findings of each panel; of several panels in one table, with their names."""
    names = [panel.name if panel.references or len(group) == 1 else panel.kernel for panel in group]
    for name_of_panel, panel in zip(names, group, strict=True):
        place = panel.place(name_of_panel if len(group) > 1 or panel.first.table is not None else None)
        name = _name_by_function if shows_points(panel) else probe_title
        yield from overhead_findings(panel.cells, name, place)
        yield from _ratios(panel, place)
    yield from _fifteen_years(group)


def _name_by_function(cell: CellRecord) -> str:
    return f"{probe_title(cell)} at {cell.parameters.get('at')}"


def _ratios(panel: Panel, place: str) -> Iterator[Finding]:
    """The largest measured ratio to the probe that the document compares with, and what it published."""
    table = panel.reference
    if table is None:
        return
    decided = {cell.probe: cell for cell in panel.cells if cell.overhead is not None and cell.verdict is None}
    base = decided.get(_COMPARED_WITH.get(table.layout, ""))
    others = [cell for probe, cell in decided.items() if probe != BASELINE and cell is not base]
    if base is None or base.overhead is None or base.overhead <= 0 or not others:
        return
    largest = max(others, key=lambda cell: cell.overhead or 0.0)
    measured = ratio_figure(largest.overhead, base.overhead)
    documented = ratio_figure(published(largest, table.id).overhead, published(base, table.id).overhead)
    beside = "" if documented == NOTHING else f"; published: {documented}"
    of_place = f", in {place}" if place else ""
    sentence = f"Ratio of {probe_title(largest)} to {probe_title(base)}{of_place}: {measured}{beside}."
    yield Finding(Rank.PUBLISHED, sentence, (largest.overhead or 0.0) / base.overhead)


def _fifteen_years(group: Group) -> Iterator[Finding]:
    """From the djprobe of 2005 to fentry, where both do nothing else, on each kernel that has both."""
    pairs = []
    for panel in group:
        decided = {cell.probe: cell for cell in panel.cells if cell.overhead is not None and cell.verdict is None}
        then, today = decided.get(_THEN), decided.get(_TODAY)
        if then is not None and today is not None and panel.first.handler == "noop" and not shows_points(panel):
            pairs.append(f"{figure(then.overhead, then.unit)} to {cost(today)} on {panel.kernel}")
    if pairs:
        sentence = f"What fifteen years brought, from djprobe (2005) to BPF on fentry (2019): {', '.join(pairs)}."
        yield Finding(Rank.PUBLISHED, sentence)


# Tables in the layout of the mail of 2009: one row per probe, and one published table beside the other.
#
# Measured and published overheads are side by side, and so are their ratios to the optimised kprobe's.

_MAIL_COMPARED_WITH = "kprobe+optimized"


@dataclass(frozen=True)
class _Half:
    """A published table and the cells measured for it, by the mail's names."""

    panel: Panel
    table: ReferenceTable
    cells: dict[str, CellRecord]


def fits_mail(panel: Panel) -> bool:
    """Whether the panel is compared with a table of this layout, and has no probe twice."""
    probed = [cell.probe for cell in panel.cells if cell.probe != BASELINE]
    return panel.reference is not None and panel.reference.layout == "mail" and len(set(probed)) == len(probed)


def mail_sheet(group: Group) -> Sheet:
    """Return panels that fit the mail, each of another table of one document, as one table."""
    halves = [
        _Half(panel, panel.reference, {mail_label(cell): cell for cell in panel.cells if cell.probe != BASELINE})
        for panel in group
        if panel.reference is not None
    ]
    owner = {cell.id: half for half in halves for cell in half.panel.cells}
    cells = [cell for half in halves for cell in half.panel.cells]

    def name(cell: CellRecord) -> str:
        label = probe_title(cell) if cell.probe == BASELINE else mail_label(cell)
        return f"{owner[cell.id].table.name} {label}"

    footnotes = Footnotes(cells, name, lambda cell: other_kernel(owner[cell.id].panel, cell))
    first, returned = halves[0], outcomes(cells, name)
    processors = dict.fromkeys(cpu(half.panel.first.cpu).title for half in halves)
    return Sheet(
        title=first.table.figure,
        facts=[
            f"Overhead of probes on {', '.join(processors)}",
            *(_conditions(half, footnotes) for half in halves),
            *returned.failing,
        ],
        grid=_grid(halves, footnotes),
        sentences=[
            *(source(half.table.id) for half in halves),
            comparison_meaning(first.panel),
            *purpose_sentences(cells, name),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=[proofs for half in halves for proofs in proof_lists(half.panel.cells, name)],
    )


def mail_label(cell: CellRecord) -> str:
    """Return the name of the cell's row: the mail's, where it has one."""
    kind = probes().get(cell.probe)
    return kind.column if kind and kind.column else cell.probe


def _conditions(half: _Half, footnotes: Footnotes) -> str:
    baselines = [
        (cell.kernel if half.panel.elsewhere(cell) else heading(cell))
        + f"{footnotes.marks(cell)} "
        + (figure(cell.value, cell.unit) if cell.value is not None else cell.status)
        for cell in half.panel.cells
        if cell.probe == BASELINE
    ]
    return f"{conditions(half.panel)}; baseline {', '.join(baselines) or 'not measured'}"


def _grid(halves: Sequence[_Half], footnotes: Footnotes) -> Grid:
    published = list(dict.fromkeys(column for half in halves for column in half.table.columns))
    others = list(dict.fromkeys(label for half in halves for label in half.cells if label not in published))
    # The mail separates kprobes and kretprobes.
    blocks = [list(labels) for _, labels in groupby(published, lambda column: column.partition("+")[0])]
    if others:
        blocks.append(others)
    rows = [
        [Row(label, [text for half in halves for text in _figures(half, label, footnotes)]) for label in labels]
        for labels in blocks
    ]
    headings = [text for half in halves for text in _headings(half)]
    return Grid(headings, rows, together=len(headings) // len(halves))


def _headings(half: _Half) -> list[str]:
    name, unit = half.table.name, half.panel.first.unit
    bounds = ["95 % from", "95 % to"] if half.panel.first.clock == "wall" else []
    columns = [unit_name(unit), *bounds, f"published {unit_name(half.table.unit)}", "ratio", "published ratio"]
    return [f"{name} {column}" for column in columns]


def _figures(half: _Half, label: str, footnotes: Footnotes) -> list[str]:
    cell, base = half.cells.get(label), half.cells.get(_MAIL_COMPARED_WITH)
    overhead = half.table.overhead(label) if label in half.table.columns else None
    bounds = [NOTHING, NOTHING] if half.panel.first.clock == "wall" else []
    if cell is None:
        measured = NOTHING
    elif cell.status != "ok":
        measured = cell.status + footnotes.marks(cell)
    else:
        measured = figure(cell.overhead, cell.unit) + footnotes.marks(cell)
        if bounds and cell.interval:
            bounds = [figure(end, cell.unit) for end in cell.interval]
    compared = half.table.overhead(_MAIL_COMPARED_WITH) if _MAIL_COMPARED_WITH in half.table.columns else None
    return [measured, *bounds, _mail_figure(overhead), _ratio(cell, base), ratio_figure(overhead, compared)]


def _mail_figure(overhead: float | None) -> str:
    """The mail prints every figure to two decimals."""
    return NOTHING if overhead is None else f"{overhead:.2f}"


def _ratio(cell: CellRecord | None, base: CellRecord | None) -> str:
    if cell is None or base is None or cell.overhead is None or base.overhead is None:
        return NOTHING
    return UNDECIDED if "none" in (cell.verdict, base.verdict) else ratio_figure(cell.overhead, base.overhead)


# The overheads of probes on a call as bars, beside the published ones.

_LABEL_WIDTH = 12
_EMPTY = Bar(None, "")


def list_chart(panel: Panel) -> BarChart:
    """Return the chart of a panel that is one list: a pane of measured bars, and one for each published table."""
    cells = [cell for cell in panel.cells if cell.probe != BASELINE]
    right = [
        (f"published, {unit_name(published_unit(panel.cells, table))}", _published_series(table, cells))
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


def _published_series(table: str, cells: Sequence[CellRecord]) -> Series:
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


# List 15 of the djprobe document: the capabilities of each probe, the document's text above the measured result.

TITLE = "List 15 Probes' function"
_WIDTH = 16
_DIFFERENT = "Different from the document"


def shows_capabilities(panel: Panel) -> bool:
    """Whether the panel has probes, and all of them are List 15's."""
    probed = [cell.probe for cell in panel.cells if cell.probe != BASELINE]
    return bool(probed) and all(probe in capability_names() for probe in probed)


def capability_sheet(panel: Panel) -> Sheet:
    """Return a panel that shows capabilities as List 15."""
    cells = [cell for cell in panel.cells if cell.probe != BASELINE]
    footnotes = Footnotes(cells, _name, lambda _: None)
    first, returned = panel.first, outcomes(cells, _name)
    return Sheet(
        title=TITLE,
        facts=[f"{first.cpu}, {processors(first)}, kernel {panel.kernel}", *returned.failing],
        grid=Grid(SHOWN_FOR, list(_blocks({cell.probe: cell for cell in cells}, footnotes)), together=len(SHOWN_FOR)),
        sentences=[
            capability_list().footnote,
            "yes 1000/1000: in 1000 of 1000 calls the handler saw what it must see; "
            "no 1000/1000: in 1000 of 1000 calls it saw that these registers were not saved.",
            *_places(cells),
            "Published: djprobe-2005, section 7.",
            *_deviations(cells),
            *purpose_sentences(cells, _name),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(cells, _name),
    )


def capability_findings(panel: Panel) -> Iterator[Finding]:
    """Whether all results agree with the document, or which do not."""
    for sentence in _deviations([cell for cell in panel.cells if cell.probe != BASELINE]):
        rank = Rank.CONTRADICTED if sentence.startswith(_DIFFERENT) else Rank.PUBLISHED
        yield Finding(rank, f"{TITLE}: {sentence}")


def _blocks(cells: Mapping[str, CellRecord], footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    for key, row in capability_list().rows.items():
        block = [*_words(row)]
        for name, capability in capability_list().capabilities.items():
            if capability.row == key:
                shown = [_shown(cells.get(f"{probe}.{name}"), footnotes) for probe in SHOWN_FOR]
                block.append(Row(f"  {capability.title}", shown))
        yield block


def _words(row: ListRow) -> Iterator[Row]:
    """The document's text, in as many rows as it has lines."""
    columns = [textwrap.wrap(row.published.get(probe, NOTHING), _WIDTH) for probe in SHOWN_FOR]
    labels = textwrap.wrap(row.title, _WIDTH)
    for label, *words in zip_longest(labels, *columns, fillvalue=""):
        yield Row(label, words, style="bold")


def _shown(cell: CellRecord | None, footnotes: Footnotes) -> str:
    """The measured result for a capability, in a word or two."""
    if cell is None:
        return NOTHING
    marks = footnotes.marks(cell)
    has = _has(cell)
    if has is None:
        return f"{cell.status}{marks}"
    if cell.evidence is None:
        return f"no{marks}"
    return f"{'yes' if has else 'no'} {cell.evidence.hits}/{cell.evidence.calls}{marks}"


def _has(cell: CellRecord) -> bool | None:
    """Whether the probe showed the capability; None where that is unknown."""
    probe, name = capability_names()[cell.probe]
    grant = capability_list().capabilities[name].probes[probe]
    if cell.status == "ok":
        # Where the document grants nothing, the handler counts the hits in which the capability was missing.
        return grant.grants or grant.shown == "refusal"
    return False if cell.status == "unsupported" and grant.shown == "refusal" else None


def _deviations(cells: Sequence[CellRecord]) -> list[str]:
    """The sentence that lists deviations from the document, or states that there are none."""
    wrong = []
    for cell in cells:
        probe, name = capability_names()[cell.probe]
        capability = capability_list().capabilities[name]
        has = _has(cell)
        if has is not None and has != capability.probes[probe].grants:
            wrong.append(f"{probe}: {capability.title}")
    if wrong:
        return [f"{_DIFFERENT}: {', '.join(wrong)}."]
    complete = all(_has(cell) is not None for cell in cells) and len(cells) == len(capability_names())
    return ["All results agree with the document."] if complete else []


def _places(cells: Sequence[CellRecord]) -> list[str]:
    """What the document's "almost" excludes: instructions of the probed function, and of a sample of others."""
    sentences = []
    for cell in cells:
        found = cell.parameters
        if "places" in found:
            sentences.append(
                f"{cell.probe}: probes at {found['places_taken']} of the function's {found['places']} instructions "
                "at once."
            )
        if "sampled" in found:
            sentences.append(
                f"{cell.probe}: {found['sampled_taken']} of the {found['sampled']} instructions of "
                f"{found['sampled_functions']} functions from all over the kernel took a probe; "
                "kprobes refuse the rest."
            )
    return sentences


def _name(cell: CellRecord) -> str:
    """The probe's name in the experiment: titles are for the table's rows."""
    return cell.probe


_BENCHMARKS = ("gtodbench", "syscall", "workload")
_APART = ("call", "workload", "at", "image", "channel", "kernel_modules")


class CallsReport:
    """A table for each kernel and handler; tables of one mail stand side by side."""

    def owns(self, benchmark: str) -> bool:
        """Whether it times calls."""
        return benchmark in _BENCHMARKS

    def apart(self, cell: CellRecord) -> tuple[object, ...]:
        """Return the handler, the call and its point, and how the guest was reached."""
        if "points" in cell.parameters:
            return cell.handler, *parameters(cell, ["points", *(name for name in _APART if name != "at")])
        return cell.handler, *parameters(cell, _APART)

    def panels(self, cells: Sequence[CellRecord]) -> Iterable[Panel]:
        """Return a panel for each kernel."""
        return by_kernel(cells)

    def joins(self, panel: Panel, group: Group) -> bool:
        """Whether both are of one mail, and the group has not this table of it yet; or differ in their kernel only."""
        # What costs least to see is asked first: a run of 1000 points has half a million pairs of panels.
        if not panel.references:
            return differs_in_kernel_only(panel, group) and all(map(_is_comparable, (panel, *group)))
        if not all(fits_mail(one) for one in (panel, *group)):
            return False
        another = all(panel.references != other.references for other in group)
        return another and _shared(panel) == _shared(group[0])

    def sheet(self, group: Group) -> Sheet:
        """Return the group in the layout of the document it is compared with; without one, as a list of 2005."""
        if fits_mail(group[0]):
            return mail_sheet(group)
        if len(group) > 1:
            return kernels_sheet(group)
        (panel,) = group
        if shows_points(panel):
            return points_sheet(panel)
        return capability_sheet(panel) if shows_capabilities(panel) else list_sheet(panel)

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return the largest overhead, its ratio beside the published one, and what is not decided."""
        if shows_capabilities(group[0]):
            return capability_findings(group[0])
        if len(group) > 1 and _is_comparable(group[0]):
            return [*kernel_findings(group), *call_findings(group)]
        return call_findings(group)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return the chart of the probes' overheads; none of List 15, and of all functions."""
        if shows_capabilities(group[0]) or shows_points(group[0]):
            return {}
        if all(cell.probe == BASELINE for panel in group for cell in panel.cells):
            return {}
        if fits_mail(group[0]):
            return {file_name(group): mail_chart(group)}
        names = [f"{file_name([panel])}-{panel.kernel}" if len(group) > 1 else file_name(group) for panel in group]
        return {name: list_chart(panel) for name, panel in zip(names, group, strict=True)}


def _is_comparable(panel: Panel) -> bool:
    """Whether it can stand beside another kernel's: a list, and neither List 15 nor functions."""
    return is_comparable(panel) and not shows_capabilities(panel) and not shows_points(panel)


def _shared(panel: Panel) -> tuple[object, ...]:
    """What the parts of one table have in common."""
    first = panel.first
    document = panel.reference.document_id if panel.reference else None
    return document, first.smp, first.benchmark, first.metric, first.handler, first.clock


REPORT = CallsReport()
