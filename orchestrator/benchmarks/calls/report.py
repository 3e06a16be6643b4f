# SPDX-License-Identifier: GPL-2.0-only
"""How a run's benchmarks of calls are printed and drawn: as lists of 2005, the mail's tables of 2009, List 15."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, zip_longest

from orchestrator.benchmarks.calls.benchmarks import SHOWN_FOR, benchmarks, capability_list, capability_names
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, probe_in_catalogue, probes
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.catalog.words import in_order, purpose_title
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.kind import (
    INDICATION,
    Group,
    Panel,
    TableReport,
    file_name,
    other_kernel,
    parameters,
    processors,
    published,
    published_unit,
    source,
    unit_meaning,
)
from orchestrator.report.sheet import (
    NOTHING,
    UNDECIDED,
    UNKNOWN,
    Finding,
    Footnotes,
    Grid,
    Rank,
    Row,
    Sheet,
    cost,
    figure,
    hides_traps,
    number,
    overhead_findings,
    proof_lists,
    published_figure,
    ratio_figure,
    signed_figure,
    traps_per_hit,
    unit_name,
    untold_traps,
)
from orchestrator.results.contract import CellRecord, centre_of
from orchestrator.results.statistics import mean

_Name = Callable[[CellRecord], str]
"""A cell's name in its table."""
_Figure = Callable[[CellRecord], float | None]


def _benchmark_title(cell: CellRecord) -> str:
    if cell.benchmark == "gtodbench":
        return cell.benchmark
    return str(cell.parameters.get("workload") or cell.parameters.get("call") or cell.benchmark)


def _at_named_point(cell: CellRecord, what: str) -> str:
    """``what``, and the place that it is probed at where the experiment names it."""
    at = None if "points" in cell.parameters else cell.parameters.get("at")
    return f"{what} at {at}" if at else what


def _called(cell: CellRecord) -> str:
    title = _benchmark_title(cell)
    return _at_named_point(cell, "gettimeofday" if title == "gtodbench" else title)


def probe_title(cell: CellRecord) -> str:
    """Return the documents' name of the cell's probe; a bpftrace one-liner is its own, shortened."""
    if "one_liner" in cell.parameters:
        return str(cell.parameters["one_liner"])
    if cell.probe in capability_names():
        probe, capability = capability_names()[cell.probe]
        return f"{probe}, {capability_list().capabilities[capability].title}"
    kind = probe_in_catalogue(cell.probe)
    return kind.title if kind else cell.probe


def heading(cell: CellRecord) -> str:
    """Return the heading of the cell's column: for the unprobed kernel its release."""
    if cell.probe == BASELINE:
        return f"linux-{cell.parameters.get('kernel_release', cell.kernel)}"
    return probe_title(cell)


def _probed(panel: Panel) -> Sequence[CellRecord]:
    return [cell for cell in panel.cells if cell.probe != BASELINE]


def _decided(panel: Panel) -> dict[str, CellRecord]:
    """The cells whose overhead is known and decided, by their probes."""
    return {cell.probe: cell for cell in panel.cells if cell.overhead is not None and cell.verdict is None}


def _conditions(panel: Panel) -> str:
    first, title = panel.first, _benchmark_title(panel.first)
    table = f"{first.table}: " if first.table else ""
    at = _at_named_point(first, title)
    what = f"{at}, " if at != title else ""
    indication = f"; {INDICATION}" if panel.emulated else ""
    named = {"image": "image", "channel": "channel", "kernel_modules": "with its modules"}
    where = "".join(f"{title} {value}, " for name, title in named.items() if (value := first.parameters.get(name)))
    return (
        f"{table}{first.cpu}, {processors(first)}, kernel {panel.kernel}, {where}handler {first.handler}, {what}"
        f"{first.metric} in {first.unit}{indication}"
    )


def _outcomes(cells: Sequence[CellRecord], name: _Name) -> tuple[Sequence[str], Sequence[str]]:
    """The outcome of each system call of the valid cells, ``close(-1): always EBADF``: of those that failed, of others.

    Of a user's function, that of its system calls: ``mine.c: ioctl always ENOTTY; read always 1``. Where cells of one
    call differ in it, ``name`` says whose it is.
    """
    calls: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.status == "ok" and "outcome" in cell.parameters:
            arguments = str(cell.parameters.get("arguments", "[...]")).strip("[]")
            has_call = "call" in cell.parameters
            call = f"{cell.parameters['call']}({arguments})" if has_call else _benchmark_title(cell)
            calls.setdefault(call, []).append(cell)
    failing: list[str] = []
    others: list[str] = []
    for call, group in calls.items():
        has_failed = any(cell.parameters.get("result_failed") for cell in group)
        by_text: dict[str, list[str]] = {}
        for cell in group:
            by_text.setdefault(str(cell.parameters["outcome"]), []).append(name(cell))
        if len(by_text) == 1:
            texts = list(by_text)
        elif has_failed:
            texts = [f"{text} ({', '.join(dict.fromkeys(names))})" for text, names in by_text.items()]
        else:
            texts = ["always success, with different results"]  # process numbers, addresses
        (failing if has_failed else others).extend(f"{call}: {text}." for text in texts)
    return failing, others


class _Layout:
    """What all layouts have in common: the cells, in parts with an evidence of their own, their names and notes."""

    def __init__(
        self,
        parts: Sequence[Sequence[CellRecord]],
        name: _Name,
        remark: Callable[[CellRecord], str | None] = lambda _: None,
    ) -> None:
        self._parts, self._name = parts, name
        self.cells = [cell for part in parts for cell in part]
        self.footnotes = Footnotes(self.cells, name, remark)

    def sheet(
        self, title: str, facts: Sequence[str], grid: Grid, sentences: Sequence[str], name: _Name | None = None
    ) -> Sheet:
        failing, others = _outcomes(self.cells, name or self._name)
        return Sheet(
            title=title,
            facts=[*facts, *failing],
            grid=grid,
            sentences=[*sentences, *others],
            footnotes=self.footnotes.all(),
            proofs=[proofs for part in self._parts for proofs in proof_lists(part, self._name)],
        )


def _comparison_meaning(panel: Panel) -> str:
    more = " Ratios in two different units are not expected to agree." if panel.first.clock == "instructions" else ""
    return f"{unit_meaning(panel)}{more}"


def _overhead(cell: CellRecord) -> float | None:
    return cell.overhead


def _shown(cell: CellRecord | None, value_of: _Figure = _overhead, footnotes: Footnotes | None = None) -> str:
    if cell is None:
        return NOTHING
    marks = "" if footnotes is None else footnotes.marks(cell)
    return (cell.status if cell.status != "ok" else figure(value_of(cell), cell.unit)) + marks


def _purpose_names(cells: Sequence[CellRecord]) -> Sequence[str]:
    return in_order([name for cell in cells for name in cell.purposes])


def _purpose_meaning(cells: Sequence[CellRecord]) -> Iterator[str]:
    if _purpose_names(cells):
        yield "The purposes add up to the overhead, to the instruction; other is what the catalogue assigns to none."


def purpose_sentences(cells: Sequence[CellRecord], name: _Name) -> Iterator[str]:
    """A sentence on the purposes of each cell, for tables whose rows are something else."""
    for cell in cells:
        if cell.purposes:
            parts = [
                f"{purpose_title(one)} {figure(cell.purposes[one], cell.unit)}" for one in in_order([*cell.purposes])
            ]
            yield f"{name(cell)}: {', '.join(parts)}."
    yield from _purpose_meaning(cells)


def _shows_points(panel: Panel) -> bool:
    """Whether the panel's points were found: the functions that calls enter, or the instructions of one."""
    return "points" in panel.first.parameters


def _points_sheet(panel: Panel) -> Sheet:
    at_points: dict[str, dict[str, CellRecord]] = {}
    for cell in panel.cells:
        at_points.setdefault(_at(cell), {})[cell.probe] = cell
    by_point = {at: by_probe for at, by_probe in at_points.items() if BASELINE in by_probe}
    cells = [cell for cell in panel.cells if _at(cell) in by_point]
    refused = [cell for cell in panel.cells if _at(cell) not in by_point]
    layout, function = _Layout([cells], _name_of_reason, partial(other_kernel, panel)), _function(panel.first)
    names = {cell.probe: probe_title(cell) for cell in cells if cell.probe != BASELINE}
    headings = [f"{'entered' if function is None else 'executed'} by a call", *names.values()]
    rows = [
        Row(at, [_hits(by_probe), *(_shown(by_probe.get(probe), footnotes=layout.footnotes) for probe in names)])
        for at, by_probe in by_point.items()
    ]
    calls = f"a call of {_called(panel.first)}"
    each = f"function that {calls} enters" if function is None else f"instruction of {function} in {calls}"
    return layout.sheet(
        f"Overhead of probes on {cpu(panel.first.cpu).title}, at each {each}",
        [_conditions(panel), *_baseline(cells)],
        Grid(headings, [rows or [Row("no function", [NOTHING] * len(headings))]]),
        [unit_meaning(panel), *_refused(refused)],
    )


def _hits(by_probe: Mapping[str, CellRecord]) -> str:
    proofs = [cell.evidence for cell in by_probe.values() if cell.probe != BASELINE and cell.evidence is not None]
    return str(proofs[0].hits_per_call) if proofs else NOTHING


def _baseline(cells: Sequence[CellRecord]) -> Iterator[str]:
    values = {cell.value for cell in cells if cell.probe == BASELINE and cell.value is not None}
    if values:
        shown = " or ".join(number(value) for value in sorted(values))
        yield f"a call takes {shown} instructions without a probe"


def _refused(cells: Sequence[CellRecord]) -> Iterator[str]:
    by_reason: dict[str, dict[str, None]] = {}
    for cell in cells:
        by_reason.setdefault(cell.reason or cell.status, {})[_at(cell)] = None
    for reason, functions in by_reason.items():
        yield f"Not probed: {', '.join(functions)}: {reason}."


def _at(cell: CellRecord) -> str:
    return str(cell.parameters.get("at"))


def _name_of_reason(cell: CellRecord) -> str:
    # Most reasons are those of many instructions.
    is_one_of_many = cell.status == "unsupported" and _function(cell) is not None
    return probe_title(cell) if cell.status == "ok" or is_one_of_many else _name_at_point(cell)


def _name_at_point(cell: CellRecord) -> str:
    return f"{probe_title(cell)} at {_at(cell)}"


def _function(cell: CellRecord) -> str | None:
    """The function whose instructions are probed; None where functions are."""
    function, each, _ = str(cell.parameters["points"]).partition("+*")
    return function if each else None


_COMPARED_WITH = "djprobe"


def _list_sheet(panel: Panel) -> Sheet:
    cells = panel.cells
    overview = [f"Overhead of probes on {cpu(panel.first.cpu).title}", _conditions(panel)]
    title, *facts = [panel.reference.title, *overview] if panel.reference else overview
    layout = _Layout([cells], probe_title, partial(other_kernel, panel))
    marks = layout.footnotes.marks
    blocks = [list(_measured(cells, layout.footnotes)), *(list(_published(cells, table)) for table in panel.references)]
    return layout.sheet(
        title,
        facts,
        Grid([heading(cell) + (marks(cell) if cell.status == "ok" else "") for cell in cells], blocks),
        [
            *(source(table) for table in panel.references),
            _comparison_meaning(panel) if panel.references else unit_meaning(panel),
            *_purpose_meaning(cells),
            *untold_traps(cells, probe_title),
        ],
        heading,
    )


def _measured(cells: Sequence[CellRecord], footnotes: Footnotes) -> Iterator[Row]:
    first, unit = cells[0], unit_name(cells[0].unit)
    samples = [[figure(sample, cell.unit) for sample in cell.samples] for cell in cells]
    yield from _sample_rows(f"{_benchmark_title(first)}(sample", samples)
    centre = "average" if centre_of(first.clock, first.metric) is mean else "median"
    values = [
        cell.status + footnotes.marks(cell) if cell.value is None else figure(cell.value, cell.unit) for cell in cells
    ]
    yield Row(f"{centre}({unit})", values)
    yield Row(f"overhead({unit})", [figure(cell.overhead, cell.unit) for cell in cells], style="bold")
    for name in _purpose_names(cells):
        spent = [figure(cell.purposes.get(name, 0.0), cell.unit) if cell.purposes else NOTHING for cell in cells]
        yield Row(f"  {purpose_title(name)}", spent)
    if any(cell.interval and cell.interval[0] != cell.interval[1] for cell in cells):
        for end, label in enumerate(("from", "to")):
            ends = [cell.interval[end] if cell.interval and cell.probe != BASELINE else None for cell in cells]
            yield Row(f"  95 % {label}({unit})", [figure(value, first.unit) for value in ends])
    base = next((cell for cell in cells if cell.probe == _COMPARED_WITH and cell.overhead is not None), None)
    if base is not None and len(cells) > 1:
        yield Row(f"ratio to {_COMPARED_WITH}", [_ratio(cell, base) for cell in cells])
    traps = [traps_per_hit(cell) for cell in cells]
    if any(count is not None or hides_traps(cell) for cell, count in zip(cells, traps, strict=True)):
        none = [UNKNOWN if hides_traps(cell) else NOTHING for cell in cells]
        shown = [other if count is None else number(count) for count, other in zip(traps, none, strict=True)]
        yield Row("int3 a hit", shown)


def _sample_rows(label: str, samples: Sequence[Sequence[str]]) -> Iterator[Row]:
    for index, texts in enumerate(zip_longest(*samples, fillvalue=NOTHING), start=1):
        yield Row(f"{label}{index})", texts)


def _ratio(cell: CellRecord | None, base: CellRecord | None) -> str:
    if cell is None or base is None or cell.overhead is None or base.overhead is None or cell.probe == BASELINE:
        return NOTHING
    return UNDECIDED if "none" in (cell.verdict, base.verdict) else ratio_figure(cell.overhead, base.overhead)


def _published(cells: Sequence[CellRecord], table: str) -> Iterator[Row]:
    unit = unit_name(published_unit(cells, table))
    columns = [published(cell, table) for cell in cells]
    yield from _sample_rows("published(sample", [[published_figure(one) for one in all_.samples] for all_ in columns])
    yield Row(f"published average({unit})", [published_figure(one.average) for one in columns])
    overheads = [None if cell.probe == BASELINE else one.overhead for cell, one in zip(cells, columns, strict=True)]
    yield Row(f"published overhead({unit})", [published_figure(one.overhead) for one in columns], style="bold")
    compared = [one for cell, one in zip(cells, overheads, strict=True) if cell.probe == _COMPARED_WITH]
    if compared and len(cells) > 1:
        yield Row(f"published ratio to {_COMPARED_WITH}", [ratio_figure(one, compared[0]) for one in overheads])


# Kernels side by side: a row for each probe, a column for each kernel, and what the others take more than the first.
#
# For exact counts alone: every difference between them is one. Times have a table for each kernel, with their
# intervals.


def _kernels_sheet(group: Group) -> Sheet:
    first, parts = group[0].first, [panel.cells for panel in group]
    layout = _Layout(parts, lambda cell: f"{probe_title(cell)} on {cell.kernel}")
    table, what = f"{first.table}: " if first.table else "", _at_named_point(first, _benchmark_title(first))
    releases = {panel.kernel: panel.first.parameters.get("kernel_release") for panel in group}
    others = [text for panel in group[1:] for text in (panel.kernel, "difference", "")]
    return layout.sheet(
        f"Overhead of probes on {cpu(first.cpu).title}, on {len(group)} kernels",
        [
            f"{table}{first.cpu}, {processors(first)}, handler {first.handler}, {what}, {first.metric} in {first.unit}",
            *(f"{kernel}: linux-{release}" for kernel, release in releases.items() if release),
        ],
        Grid([group[0].kernel, *others], list(_kernel_blocks(group, layout.footnotes))),
        [f"Differences are to {group[0].kernel}. {unit_meaning(group[0])}", *_purpose_meaning(layout.cells)],
    )


def _kernel_blocks(group: Group, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    unit, blank = unit_name(group[0].first.unit), [""] * (3 * len(group) - 2)
    by_probe = [{cell.probe: cell for cell in panel.cells} for panel in group]
    firsts = {cell.probe: cell for panel in reversed(group) for cell in panel.cells}
    probes = dict.fromkeys(cell.probe for panel in group for cell in panel.cells)
    rows = {probe: [panel.get(probe) for panel in by_probe] for probe in probes}
    titles = {probe: probe_title(firsts[probe]) for probe in probes}
    values = [
        Row(titles[probe], list(_values(cells, lambda cell: cell.value, footnotes))) for probe, cells in rows.items()
    ]
    yield [Row(f"a call({unit})", blank, "bold"), *values]
    overheads = []
    for probe, cells in rows.items():
        if probe == BASELINE or not any(cell and cell.overhead is not None for cell in cells):
            continue
        overheads.append(Row(titles[probe], list(_values(cells, _overhead))))
        for name in _purpose_names([cell for cell in cells if cell is not None]):

            def spent(cell: CellRecord, name: str = name) -> float | None:
                return cell.purposes.get(name, 0.0) if cell.purposes else None

            overheads.append(Row(f"  {purpose_title(name)}", list(_values(cells, spent))))
    if overheads:
        yield [Row(f"overhead({unit})", blank, "bold"), *overheads]


def _values(cells: Sequence[CellRecord | None], value_of: _Figure, footnotes: Footnotes | None = None) -> Iterator[str]:
    base = None if cells[0] is None else value_of(cells[0])
    for index, cell in enumerate(cells):
        yield _shown(cell, value_of, footnotes)
        value = None if cell is None else value_of(cell)
        if index and (cell is None or value is None or base is None):
            yield from (NOTHING, NOTHING)
        elif index and cell is not None and value is not None and base is not None:
            yield signed_figure(value - base, cell.unit)
            yield _percent_of(value - base, base) if base > 0 else NOTHING


def _percent_of(difference: float, base: float) -> str:
    return f"{100 * difference / base:+.2f} %" if difference else "0 %"


# Tables in the layout of the mail of 2009: one row per probe, and one published table beside the other.
#
# Measured and published overheads are side by side, and so are their ratios to the optimised kprobe's.

_MAIL_COMPARED_WITH = "kprobe+optimized"


@dataclass(frozen=True)
class _Half:
    panel: Panel
    table: ReferenceTable
    cells: dict[str, CellRecord]

    def columns(self, label: str, footnotes: Footnotes) -> dict[str, str]:
        first, cell, base = self.panel.first, self.cells.get(label), self.cells.get(_MAIL_COMPARED_WITH)
        overhead, compared = (
            self.table.overhead(name) if name in self.table.columns else None for name in (label, _MAIL_COMPARED_WITH)
        )
        low, high = (None if cell is None or cell.status != "ok" else cell.interval) or (None, None)
        bounds = {"95 % from": figure(low, first.unit), "95 % to": figure(high, first.unit)}
        columns = {
            unit_name(first.unit): _shown(cell, footnotes=footnotes),
            **(bounds if first.clock == "wall" else {}),
            # The mail prints every figure to two decimals.
            f"published {unit_name(self.table.unit)}": NOTHING if overhead is None else f"{overhead:.2f}",
            "ratio": _ratio(cell, base),
            "published ratio": ratio_figure(overhead, compared),
        }
        return {f"{self.table.name} {heading}": text for heading, text in columns.items()}

    def conditions(self, footnotes: Footnotes) -> str:
        baselines = [
            (cell.kernel if self.panel.elsewhere(cell) else heading(cell))
            + f"{footnotes.marks(cell)} "
            + (figure(cell.value, cell.unit) if cell.value is not None else cell.status)
            for cell in self.panel.cells
            if cell.probe == BASELINE
        ]
        return f"{_conditions(self.panel)}; baseline {', '.join(baselines) or 'not measured'}"


def _mail_sheet(group: Group) -> Sheet:
    halves = [
        _Half(panel, panel.reference, {_mail_label(cell): cell for cell in _probed(panel)})
        for panel in group
        if panel.reference is not None
    ]
    owner = {cell.id: half for half in halves for cell in half.panel.cells}

    def name(cell: CellRecord) -> str:
        label = probe_title(cell) if cell.probe == BASELINE else _mail_label(cell)
        return f"{owner[cell.id].table.name} {label}"

    layout = _Layout([half.panel.cells for half in halves], name, lambda cell: other_kernel(owner[cell.id].panel, cell))
    first, footnotes = halves[0], layout.footnotes
    processors = dict.fromkeys(cpu(half.panel.first.cpu).title for half in halves)
    labels = dict.fromkeys(column for half in halves for column in half.table.columns)
    # The mail separates kprobes and kretprobes.
    blocks = [list(labels) for _, labels in groupby(labels, lambda column: column.partition("+")[0])]
    blocks.append(list(dict.fromkeys(label for half in halves for label in half.cells if label not in labels)))
    rows = [
        [Row(label, [text for half in halves for text in half.columns(label, footnotes).values()]) for label in block]
        for block in blocks
        if block
    ]
    headings = [heading for half in halves for heading in half.columns("", footnotes)]
    return layout.sheet(
        first.table.figure,
        [f"Overhead of probes on {', '.join(processors)}", *(half.conditions(footnotes) for half in halves)],
        Grid(headings, rows, together=len(headings) // len(halves)),
        [
            *(source(half.table.id) for half in halves),
            _comparison_meaning(first.panel),
            *purpose_sentences(layout.cells, name),
        ],
    )


def _mail_label(cell: CellRecord) -> str:
    kind = probes().get(cell.probe)
    return kind.column if kind and kind.column else cell.probe


# List 15 of the djprobe document: the capabilities of each probe, the document's text above the measured result.

_CAPABILITIES_TITLE = "List 15 Probes' function"


def _shows_capabilities(panel: Panel) -> bool:
    probed = [cell.probe for cell in _probed(panel)]
    return bool(probed) and all(probe in capability_names() for probe in probed)


def _capability_sheet(panel: Panel) -> Sheet:
    cells = _probed(panel)
    layout, first, deviating = _Layout([cells], _probe), panel.first, _deviations(cells)
    blocks = list(_capability_blocks({cell.probe: cell for cell in cells}, layout.footnotes))
    return layout.sheet(
        _CAPABILITIES_TITLE,
        [f"{first.cpu}, {processors(first)}, kernel {panel.kernel}"],
        Grid(SHOWN_FOR, blocks, together=len(SHOWN_FOR)),
        [
            capability_list().footnote,
            "yes 1000/1000: in 1000 of 1000 calls the handler saw what it must see; "
            "no 1000/1000: in 1000 of 1000 calls it saw that these registers were not saved.",
            *_places(cells),
            "Published: djprobe-2005, section 7.",
            *([] if deviating is None else [deviating]),
            *purpose_sentences(cells, _probe),
        ],
    )


def _capability_blocks(cells: Mapping[str, CellRecord], footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    for key, row in capability_list().rows.items():
        # The document's text, in as many rows as it has lines.
        columns = [textwrap.wrap(text, 16) for text in (row.title, *(row.published.get(p, NOTHING) for p in SHOWN_FOR))]
        block = [Row(label, words, style="bold") for label, *words in zip_longest(*columns, fillvalue="")]
        for name, capability in capability_list().capabilities.items():
            if capability.row == key:
                shown = [_capability(cells.get(f"{probe}.{name}"), footnotes) for probe in SHOWN_FOR]
                block.append(Row(f"  {capability.title}", shown))
        yield block


def _capability(cell: CellRecord | None, footnotes: Footnotes) -> str:
    if cell is None:
        return NOTHING
    has = _has(cell)
    if has is None:
        text: str = cell.status
    elif cell.evidence is None:
        text = "no"
    else:
        text = f"{'yes' if has else 'no'} {cell.evidence.hits}/{cell.evidence.calls}"
    return text + footnotes.marks(cell)


def _has(cell: CellRecord) -> bool | None:
    """Whether the probe showed the capability; None where that is unknown."""
    probe, name = capability_names()[cell.probe]
    grant = capability_list().capabilities[name].probes[probe]
    if cell.status == "ok":
        # Where the document grants nothing, the handler counts the hits in which the capability was missing.
        return grant.grants or grant.shown == "refusal"
    return False if cell.status == "unsupported" and grant.shown == "refusal" else None


def _deviations(cells: Sequence[CellRecord]) -> str | None:
    wrong = []
    for cell in cells:
        probe, name = capability_names()[cell.probe]
        capability = capability_list().capabilities[name]
        if _has(cell) not in (None, capability.probes[probe].grants):
            wrong.append(f"{probe}: {capability.title}")
    if wrong:
        return f"Different from the document: {', '.join(wrong)}."
    complete = all(_has(cell) is not None for cell in cells) and len(cells) == len(capability_names())
    return "All results agree with the document." if complete else None


def _places(cells: Sequence[CellRecord]) -> Iterator[str]:
    for cell in cells:
        found = cell.parameters
        if "places" in found:
            yield (
                f"{cell.probe}: probes at {found['places_taken']} of the function's {found['places']} instructions "
                "at once."
            )
        if "sampled" in found:
            yield (
                f"{cell.probe}: {found['sampled_taken']} of the {found['sampled']} instructions of "
                f"{found['sampled_functions']} functions from all over the kernel took a probe; "
                "kprobes refuse the rest."
            )


def _probe(cell: CellRecord) -> str:
    return cell.probe


_DOCUMENTS_PROBE = {"list": "djprobe", "mail": "kprobe-optimized"}
"""The probe that a document compares the others with, by the layout of its tables."""
_THEN, _TODAY = "djprobe", "bpf-fentry"
"""The jump of 2005, and the call of Linux 5.5 (2019) that took its place: each enters the handler without a trap."""


def _call_findings(group: Group) -> Iterator[Finding]:
    names = [panel.name if panel.references or len(group) == 1 else panel.kernel for panel in group]
    for name_of_panel, panel in zip(names, group, strict=True):
        place = panel.place(name_of_panel if len(group) > 1 or panel.first.table is not None else None)
        name = _name_at_point if _shows_points(panel) else probe_title
        yield from overhead_findings(panel.cells, name, place)
        yield from _ratios(panel, place)
    yield from _fifteen_years(group)


def _ratios(panel: Panel, place: str) -> Iterator[Finding]:
    table = panel.reference
    if table is None:
        return
    decided = _decided(panel)
    base = decided.get(_DOCUMENTS_PROBE.get(table.layout, ""))
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
        decided = _decided(panel)
        then, today = decided.get(_THEN), decided.get(_TODAY)
        if then is not None and today is not None and panel.first.handler == "noop" and not _shows_points(panel):
            pairs.append(f"{figure(then.overhead, then.unit)} to {cost(today)} on {panel.kernel}")
    if pairs:
        sentence = f"What fifteen years brought, from djprobe (2005) to BPF on fentry (2019): {', '.join(pairs)}."
        yield Finding(Rank.PUBLISHED, sentence)


def _kernel_findings(group: Group) -> Iterator[Finding]:
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
    share = f" ({_percent_of(difference, before)})" if before > 0 else ""
    more = f"{signed_figure(difference, cell.unit)} {unit_name(cell.unit)} a call{share}"
    sentence = f"Largest difference from {group[0].kernel} to {cell.kernel}{of_place}: {probe_title(cell)}, {more}."
    yield Finding(Rank.DIFFERENT, sentence, abs(difference) / before if before > 0 else 0.0)


_EMPTY = Bar(None, "")


def _list_chart(panel: Panel) -> BarChart:
    cells = _probed(panel)
    right = []
    for table in panel.references:
        overheads = [published(cell, table).overhead for cell in cells]
        bars = [Bar(value, "" if value is None else published_figure(value)) for value in overheads]
        right.append((f"published, {unit_name(published_unit(panel.cells, table))}", [Series(table, bars)]))
    first = panel.first
    title = f"Overheads of probes on {_called(first)}, {cpu(first.cpu).title}"
    measured = Series("", [_bar(cell) for cell in cells])
    return BarChart(
        title=panel.reference.figure if panel.reference else title,
        subtitle=_subtitle([panel]),
        labels=[_folded(probe_title(cell)) for cell in cells],
        panes=[(_measured_axis(panel), [measured]), *right],
    )


def _mail_chart(group: Group) -> BarChart:
    tables = [panel.reference for panel in group if panel.reference is not None]
    labels = list(dict.fromkeys(column for table in tables for column in table.columns))
    measured = []
    for panel in group:
        by_label = {_mail_label(cell): cell for cell in _probed(panel)}
        bars = [_bar(by_label[label]) if label in by_label else _EMPTY for label in labels]
        measured.append(Series(panel.name, bars))
    mailed = [Series(table.name, [_mailed(table, label) for label in labels]) for table in tables]
    return BarChart(
        title=tables[0].figure,
        subtitle=_subtitle(group),
        labels=[_folded(label) for label in labels],
        panes=[(_measured_axis(group[0]), measured), (f"published, {unit_name(tables[0].unit)}", mailed)],
    )


def _mailed(table: ReferenceTable, label: str) -> Bar:
    return Bar(table.overhead(label), f"{table.overhead(label):.2f}") if label in table.columns else _EMPTY


def _bar(cell: CellRecord) -> Bar:
    if cell.overhead is None:
        return Bar(None, cell.status if cell.status != "ok" else "no baseline")
    text = figure(cell.overhead, cell.unit)
    bounds = cell.interval if cell.clock == "wall" else None
    return Bar(cell.overhead, f"{text}\nno verdict" if cell.verdict == "none" else text, bounds)


def _folded(label: str) -> str:
    return "\n".join(textwrap.wrap(label.replace("+", " +"), 12))


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
    return f"overhead a call of {_called(first)}; measured on {where}"


class CallsReport(TableReport):
    """A table for each kernel and handler; tables of one mail stand side by side."""

    APART = ("call", "workload", "at", "image", "channel", "kernel_modules")

    def owns(self, benchmark: str) -> bool:
        return benchmark in benchmarks()

    def apart(self, cell: CellRecord) -> Hashable:
        if "points" in cell.parameters:
            return cell.handler, *parameters(cell, ["points", *(name for name in self.APART if name != "at")])
        return super().apart(cell)

    def joins(self, panel: Panel, group: Group) -> bool:
        """Whether both are of one mail, and the group has not this table of it yet; or differ in their kernel only."""
        # What costs least to see is asked first: a run of 1000 points has half a million pairs of panels.
        if not panel.references:
            return _differs_in_kernel_only(panel, group) and all(map(_is_comparable, (panel, *group)))
        if not all(_fits_mail(one) for one in (panel, *group)):
            return False
        another = all(panel.references != other.references for other in group)
        return another and _shared(panel) == _shared(group[0])

    def sheet(self, group: Group) -> Sheet:
        if _fits_mail(group[0]):
            return _mail_sheet(group)
        if len(group) > 1:
            return _kernels_sheet(group)
        (panel,) = group
        if _shows_points(panel):
            return _points_sheet(panel)
        return _capability_sheet(panel) if _shows_capabilities(panel) else _list_sheet(panel)

    def findings(self, group: Group) -> Iterator[Finding]:
        if _shows_capabilities(group[0]):
            sentence = _deviations(_probed(group[0]))
            if sentence is not None:
                rank = Rank.CONTRADICTED if sentence.startswith("Different") else Rank.PUBLISHED
                yield Finding(rank, f"{_CAPABILITIES_TITLE}: {sentence}")
            return
        if len(group) > 1 and _is_comparable(group[0]):
            yield from _kernel_findings(group)
        yield from _call_findings(group)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        if _shows_capabilities(group[0]) or _shows_points(group[0]) or not any(map(_probed, group)):
            return {}
        if _fits_mail(group[0]):
            return {file_name(group): _mail_chart(group)}
        names = [f"{file_name([panel])}-{panel.kernel}" if len(group) > 1 else file_name(group) for panel in group]
        return {name: _list_chart(panel) for name, panel in zip(names, group, strict=True)}


def _fits_mail(panel: Panel) -> bool:
    """Whether the panel is compared with a table of the mail's layout, and has no probe twice."""
    probed = [cell.probe for cell in _probed(panel)]
    return panel.reference is not None and panel.reference.layout == "mail" and len(set(probed)) == len(probed)


def _is_comparable(panel: Panel) -> bool:
    """Whether it may stand beside another kernel's: exact, of one kernel, and in no document's layout."""
    probes = [cell.probe for cell in panel.cells]
    return (
        panel.first.clock == "instructions"
        and not panel.references
        and len(set(probes)) == len(probes)
        and not any(panel.elsewhere(cell) for cell in panel.cells)
        and all(len(set(cell.samples)) <= 1 for cell in panel.cells)
        and not _shows_capabilities(panel)
        and not _shows_points(panel)
    )


def _differs_in_kernel_only(panel: Panel, group: Group) -> bool:
    """Whether the panel has the group's cells on a kernel that the group does not have."""

    def shared(one: Panel) -> tuple[object, ...]:
        first = one.first
        own = (first.table, first.cpu, first.smp, first.handler, first.benchmark, first.metric)
        return *own, *parameters(first, CallsReport.APART)

    if panel.first.parameters.get("at") != group[0].first.parameters.get("at"):
        return False
    return shared(panel) == shared(group[0]) and all(panel.kernel != other.kernel for other in group)


def _shared(panel: Panel) -> tuple[object, ...]:
    first = panel.first
    document = panel.reference.document_id if panel.reference else None
    return document, first.smp, first.benchmark, first.metric, first.handler, first.clock


REPORT = CallsReport()
