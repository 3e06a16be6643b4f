# SPDX-License-Identifier: GPL-2.0-only
"""The layouts of tables of calls: lists of 2005, the mail of 2009, List 15, all functions, kernels side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest

from orchestrator.benchmarks.calls.benchmarks import SHOWN_FOR, capability_list, capability_names
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, probe_in_catalogue, probes
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.catalog.words import in_order, purpose_title
from orchestrator.report.kind import (
    INDICATION,
    Group,
    Panel,
    other_kernel,
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
    Footnotes,
    Grid,
    Row,
    Sheet,
    figure,
    hides_traps,
    number,
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

# Titles and sentences that the layouts of calls share.

_Name = Callable[[CellRecord], str]
"""A cell's name in its table."""
_Figure = Callable[[CellRecord], float | None]
_TWO_UNITS = "Ratios in two different units are not expected to agree."
_ADD_UP = "The purposes add up to the overhead, to the instruction; other is what the catalogue assigns to none."


def _benchmark_title(cell: CellRecord) -> str:
    """What the cell runs, in a word: the user's file or the system call where the experiment names it."""
    if cell.benchmark == "gtodbench":
        return cell.benchmark
    return str(cell.parameters.get("workload") or cell.parameters.get("call") or cell.benchmark)


def called(cell: CellRecord) -> str:
    """Return what each call of the cell runs, and the place that it is probed at where the experiment names it."""
    title = _benchmark_title(cell)
    what = "gettimeofday" if title == "gtodbench" else title
    at = None if "points" in cell.parameters else cell.parameters.get("at")
    return f"{what} at {at}" if at else what


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


def _conditions(panel: Panel) -> str:
    first = panel.first
    table = f"{first.table}: " if first.table else ""
    at = None if "points" in first.parameters else first.parameters.get("at")
    what = f"{_benchmark_title(first)} at {at}, " if at else ""
    indication = f"; {INDICATION}" if panel.emulated else ""
    named = {"image": "image", "channel": "channel", "kernel_modules": "with its modules"}
    where = "".join(f"{title} {value}, " for name, title in named.items() if (value := first.parameters.get(name)))
    return (
        f"{table}{first.cpu}, {processors(first)}, kernel {panel.kernel}, {where}handler {first.handler}, {what}"
        f"{first.metric} in {first.unit}{indication}"
    )


@dataclass(frozen=True)
class _Outcomes:
    """What the calls of a table returned, in sentences; ``failing`` are those of cells with calls that failed."""

    failing: Sequence[str]
    others: Sequence[str]


def _outcomes(cells: Sequence[CellRecord], name: _Name) -> _Outcomes:
    """The outcome of each system call of the valid cells: ``close(-1): always EBADF``.

    Of a user's function, that of its system calls: ``mine.c: ioctl always ENOTTY; read always 1``.

    Where cells of one call differ in it, ``name`` says whose it is. Runs of earlier versions have no outcomes.
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
    return _Outcomes(failing, others)


def _comparison_meaning(panel: Panel) -> str:
    """The sentences on the panel's unit where published figures, in nanoseconds, stand beside."""
    meaning = unit_meaning(panel)
    return f"{meaning} {_TWO_UNITS}" if panel.first.clock == "instructions" else meaning


def _overhead(cell: CellRecord) -> float | None:
    return cell.overhead


def _shown(cell: CellRecord | None, value_of: _Figure = _overhead, footnotes: Footnotes | None = None) -> str:
    """A figure of a cell, with the marks of its notes: the status where it has no number."""
    if cell is None:
        return NOTHING
    marks = "" if footnotes is None else footnotes.marks(cell)
    return (cell.status if cell.status != "ok" else figure(value_of(cell), cell.unit)) + marks


def _purpose_names(cells: Sequence[CellRecord]) -> Sequence[str]:
    return in_order([name for cell in cells for name in cell.purposes])


def _purpose_meaning(cells: Sequence[CellRecord]) -> Iterator[str]:
    """The sentence on what probes spend their overhead on, where a cell has purposes."""
    if _purpose_names(cells):
        yield _ADD_UP


def purpose_sentences(cells: Sequence[CellRecord], name: _Name) -> Iterator[str]:
    """A sentence on the purposes of each cell, for tables whose rows are something else."""
    for cell in cells:
        if cell.purposes:
            parts = [
                f"{purpose_title(one)} {figure(cell.purposes[one], cell.unit)}" for one in in_order([*cell.purposes])
            ]
            yield f"{name(cell)}: {', '.join(parts)}."
    yield from _purpose_meaning(cells)


# A table of all functions that calls enter: a row for each, with the overhead of each probe there.


def shows_points(panel: Panel) -> bool:
    """Whether the panel's points were found: the functions that calls enter, or the instructions of one."""
    return "points" in panel.first.parameters


def points_sheet(panel: Panel) -> Sheet:
    """Return the panel with its functions as rows and its probes as columns."""
    at_points: dict[str, dict[str, CellRecord]] = {}
    for cell in panel.cells:
        at_points.setdefault(_at(cell), {})[cell.probe] = cell
    by_point = {at: by_probe for at, by_probe in at_points.items() if BASELINE in by_probe}
    cells = [cell for cell in panel.cells if _at(cell) in by_point]
    refused = [cell for cell in panel.cells if _at(cell) not in by_point]
    footnotes = Footnotes(cells, _name_of_reason, lambda cell: other_kernel(panel, cell))
    returned, function = _outcomes(cells, _name_of_reason), _function(panel.first)
    names = {cell.probe: probe_title(cell) for cell in cells if cell.probe != BASELINE}
    headings = [f"{'entered' if function is None else 'executed'} by a call", *names.values()]
    rows = [
        Row(at, [_hits(by_probe), *(_shown(by_probe.get(probe), footnotes=footnotes) for probe in names)])
        for at, by_probe in by_point.items()
    ]
    calls = f"a call of {called(panel.first)}"
    each = f"function that {calls} enters" if function is None else f"instruction of {function} in {calls}"
    return Sheet(
        title=f"Overhead of probes on {cpu(panel.first.cpu).title}, at each {each}",
        facts=[_conditions(panel), *_baseline(cells), *returned.failing],
        grid=Grid(headings, [rows or [Row("no function", [NOTHING] * len(headings))]]),
        sentences=[unit_meaning(panel), *_refused(refused), *returned.others],
        footnotes=footnotes.all(),
        proofs=proof_lists(cells, _name_of_reason),
    )


def _hits(by_probe: Mapping[str, CellRecord]) -> str:
    """How often a call enters the function or executes the instruction, as the hits prove."""
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
    return probe_title(cell) if cell.status == "ok" or is_one_of_many else f"{probe_title(cell)} at {_at(cell)}"


def _function(cell: CellRecord) -> str | None:
    """The function whose instructions are probed; None where functions are."""
    function, each, _ = str(cell.parameters["points"]).partition("+*")
    return function if each else None


# A table in the layout of the 2005 document's lists.

_COMPARED_WITH = "djprobe"


def list_sheet(panel: Panel) -> Sheet:
    """Return the panel as one list."""
    cells = panel.cells
    overview = [f"Overhead of probes on {cpu(panel.first.cpu).title}", _conditions(panel)]
    title, *facts = [panel.reference.title, *overview] if panel.reference else overview
    footnotes = Footnotes(cells, probe_title, lambda cell: other_kernel(panel, cell))
    returned = _outcomes(cells, heading)
    blocks = [list(_measured(cells, footnotes)), *(list(_published(cells, table)) for table in panel.references)]
    return Sheet(
        title=title,
        facts=[*facts, *returned.failing],
        grid=Grid([heading(cell) + (footnotes.marks(cell) if cell.status == "ok" else "") for cell in cells], blocks),
        sentences=[
            *(source(table) for table in panel.references),
            _comparison_meaning(panel) if panel.references else unit_meaning(panel),
            *_purpose_meaning(cells),
            *untold_traps(cells, probe_title),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(cells, probe_title),
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
    """The ratio of two overheads, where both are decided; a baseline has none."""
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


def kernels_sheet(group: Group) -> Sheet:
    """Return comparable panels that differ in their kernels only as one table."""
    first, cells = group[0].first, [cell for panel in group for cell in panel.cells]
    footnotes = Footnotes(cells, _name_on_kernel, lambda _: None)
    returned = _outcomes(cells, _name_on_kernel)
    table, at = f"{first.table}: " if first.table else "", first.parameters.get("at")
    what = f"{_benchmark_title(first)} at {at}" if at else _benchmark_title(first)
    releases = {panel.kernel: panel.first.parameters.get("kernel_release") for panel in group}
    others = [text for panel in group[1:] for text in (panel.kernel, "difference", "")]
    return Sheet(
        title=f"Overhead of probes on {cpu(first.cpu).title}, on {len(group)} kernels",
        facts=[
            f"{table}{first.cpu}, {processors(first)}, handler {first.handler}, {what}, {first.metric} in {first.unit}",
            *(f"{kernel}: linux-{release}" for kernel, release in releases.items() if release),
            *returned.failing,
        ],
        grid=Grid([group[0].kernel, *others], list(_kernel_blocks(group, footnotes)), together=1),
        sentences=[
            f"Differences are to {group[0].kernel}. {unit_meaning(group[0])}",
            *_purpose_meaning(cells),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=[proofs for panel in group for proofs in proof_lists(panel.cells, _name_on_kernel)],
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
    """The figures of one row: the first kernel's, and for each other one its own, the difference, and per cent."""
    base = None if cells[0] is None else value_of(cells[0])
    for index, cell in enumerate(cells):
        yield _shown(cell, value_of, footnotes)
        value = None if cell is None else value_of(cell)
        if index and (cell is None or value is None or base is None):
            yield from (NOTHING, NOTHING)
        elif index and cell is not None and value is not None and base is not None:
            yield signed_figure(value - base, cell.unit)
            yield percent_of(value - base, base) if base > 0 else NOTHING


def percent_of(difference: float, base: float) -> str:
    """Return a difference in per cent, with its sign."""
    return f"{100 * difference / base:+.2f} %" if difference else "0 %"


def _name_on_kernel(cell: CellRecord) -> str:
    return f"{probe_title(cell)} on {cell.kernel}"


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

    @property
    def headings(self) -> list[str]:
        first = self.panel.first
        bounds = ["95 % from", "95 % to"] if first.clock == "wall" else []
        columns = [
            unit_name(first.unit),
            *bounds,
            f"published {unit_name(self.table.unit)}",
            "ratio",
            "published ratio",
        ]
        return [f"{self.table.name} {column}" for column in columns]

    def figures(self, label: str, footnotes: Footnotes) -> list[str]:
        cell, base = self.cells.get(label), self.cells.get(_MAIL_COMPARED_WITH)
        overhead, compared = (
            self.table.overhead(name) if name in self.table.columns else None for name in (label, _MAIL_COMPARED_WITH)
        )
        bounds = [NOTHING, NOTHING] if self.panel.first.clock == "wall" else []
        if bounds and cell is not None and cell.status == "ok" and cell.interval:
            bounds = [figure(end, cell.unit) for end in cell.interval]
        # The mail prints every figure to two decimals.
        mailed = NOTHING if overhead is None else f"{overhead:.2f}"
        return [
            _shown(cell, footnotes=footnotes),
            *bounds,
            mailed,
            _ratio(cell, base),
            ratio_figure(overhead, compared),
        ]

    def conditions(self, footnotes: Footnotes) -> str:
        baselines = [
            (cell.kernel if self.panel.elsewhere(cell) else heading(cell))
            + f"{footnotes.marks(cell)} "
            + (figure(cell.value, cell.unit) if cell.value is not None else cell.status)
            for cell in self.panel.cells
            if cell.probe == BASELINE
        ]
        return f"{_conditions(self.panel)}; baseline {', '.join(baselines) or 'not measured'}"


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
    first, returned = halves[0], _outcomes(cells, name)
    processors = dict.fromkeys(cpu(half.panel.first.cpu).title for half in halves)
    labels = dict.fromkeys(column for half in halves for column in half.table.columns)
    # The mail separates kprobes and kretprobes.
    blocks = [list(labels) for _, labels in groupby(labels, lambda column: column.partition("+")[0])]
    blocks.append(list(dict.fromkeys(label for half in halves for label in half.cells if label not in labels)))
    rows = [
        [Row(label, [text for half in halves for text in half.figures(label, footnotes)]) for label in block]
        for block in blocks
        if block
    ]
    headings = [text for half in halves for text in half.headings]
    return Sheet(
        title=first.table.figure,
        facts=[
            f"Overhead of probes on {', '.join(processors)}",
            *(half.conditions(footnotes) for half in halves),
            *returned.failing,
        ],
        grid=Grid(headings, rows, together=len(headings) // len(halves)),
        sentences=[
            *(source(half.table.id) for half in halves),
            _comparison_meaning(first.panel),
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


# List 15 of the djprobe document: the capabilities of each probe, the document's text above the measured result.

CAPABILITIES_TITLE = "List 15 Probes' function"
_WIDTH = 16


def shows_capabilities(panel: Panel) -> bool:
    """Whether the panel has probes, and all of them are List 15's."""
    probed = [cell.probe for cell in panel.cells if cell.probe != BASELINE]
    return bool(probed) and all(probe in capability_names() for probe in probed)


def capability_sheet(panel: Panel) -> Sheet:
    """Return a panel that shows capabilities as List 15."""
    cells = [cell for cell in panel.cells if cell.probe != BASELINE]
    footnotes = Footnotes(cells, _probe, lambda _: None)
    first, returned = panel.first, _outcomes(cells, _probe)
    deviating = deviations(cells)
    return Sheet(
        title=CAPABILITIES_TITLE,
        facts=[f"{first.cpu}, {processors(first)}, kernel {panel.kernel}", *returned.failing],
        grid=Grid(
            SHOWN_FOR,
            list(_capability_blocks({cell.probe: cell for cell in cells}, footnotes)),
            together=len(SHOWN_FOR),
        ),
        sentences=[
            capability_list().footnote,
            "yes 1000/1000: in 1000 of 1000 calls the handler saw what it must see; "
            "no 1000/1000: in 1000 of 1000 calls it saw that these registers were not saved.",
            *_places(cells),
            "Published: djprobe-2005, section 7.",
            *([] if deviating is None else [deviating]),
            *purpose_sentences(cells, _probe),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(cells, _probe),
    )


def _capability_blocks(cells: Mapping[str, CellRecord], footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    for key, row in capability_list().rows.items():
        # The document's text, in as many rows as it has lines.
        columns = [
            textwrap.wrap(text, _WIDTH) for text in (row.title, *(row.published.get(p, NOTHING) for p in SHOWN_FOR))
        ]
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


def deviations(cells: Sequence[CellRecord]) -> str | None:
    """Return the sentence that lists deviations from the document, or states that there are none; None without all."""
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
    """What the document's "almost" excludes: instructions of the probed function, and of a sample of others."""
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
    """The probe's name in the experiment: titles are for the table's rows."""
    return cell.probe
