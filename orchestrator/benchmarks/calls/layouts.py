# SPDX-License-Identifier: GPL-2.0-only
"""The tables of calls: a list for each kernel, kernels side by side, points, the mail's of 2009, List 15 of 2005."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, zip_longest
from operator import attrgetter

from orchestrator.benchmarks.calls.benchmarks import SHOWN_FOR, capability_grants, capability_list
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, probe_in_catalogue, published_column
from orchestrator.catalog.reference import ReferenceTable
from orchestrator.catalog.words import in_order, purpose_title
from orchestrator.report.kind import (
    FIT,
    INDICATION,
    Panel,
    other_kernel,
    processors,
    published,
    published_unit,
    source,
    time_figures,
    times_meaning,
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
    has_unknown_traps,
    number,
    proof_lists,
    published_figure,
    ratio_figure,
    signed_figure,
    traps_per_hit,
    unit_name,
    unknown_traps,
)
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord, centre_of
from orchestrator.results.modelled import ModelledCell
from orchestrator.results.statistics import mean

_Name = Callable[[CellRecord], str]
"""A cell's name in its table."""
_Figure = Callable[[CellRecord], float | None]
_overhead: _Figure = attrgetter("overhead")


def benchmark_title(cell: CellRecord) -> str:
    """What the cell runs, without its point."""
    if cell.benchmark == "gtodbench":
        return cell.benchmark
    return parameters.WORKLOAD.of(cell) or parameters.CALL.of(cell) or cell.benchmark


def _at_named_point(cell: CellRecord, what: str) -> str:
    """``what``, with the probe point where the experiment names one."""
    at = None if parameters.POINTS in cell.parameters else parameters.AT.of(cell)
    return f"{what} at {at}" if at else what


def called(cell: CellRecord) -> str:
    """What the cell calls, with the probe point where the experiment names one."""
    title = benchmark_title(cell)
    return _at_named_point(cell, "gettimeofday" if title == "gtodbench" else title)


def probe_title(cell: CellRecord) -> str:
    """Return the cell's probe as the documents name it; a bpftrace one-liner is shortened."""
    one_liner = parameters.ONE_LINER.of(cell)
    if one_liner is not None:
        return one_liner
    if cell.probe in capability_grants():
        probe, capability, _ = capability_grants()[cell.probe]
        return f"{probe}, {capability.title}"
    kind = probe_in_catalogue(cell.probe)
    return kind.title if kind else cell.probe


def heading(cell: CellRecord) -> str:
    """Return the heading of the cell's column: for the unprobed kernel its release."""
    if cell.probe == BASELINE:
        return f"linux-{parameters.KERNEL_RELEASE.of(cell) or cell.kernel}"
    return probe_title(cell)


def probed(panel: Panel) -> Sequence[CellRecord]:
    """The panel's cells without its baselines."""
    return [cell for cell in panel.cells if cell.probe != BASELINE]


def conditions(panel: Panel) -> str:
    """A line on what all cells of the panel have in common."""
    first, title = panel.first, benchmark_title(panel.first)
    table = f"{first.table}: " if first.table else ""
    at = _at_named_point(first, title)
    what = f"{at}, " if at != title else ""
    indication = f"; {INDICATION}" if panel.emulated else ""
    named = {parameters.IMAGE: "image", parameters.CHANNEL: "channel", parameters.KERNEL_MODULES: "with its modules"}
    where = "".join(f"{title} {value}, " for fact, title in named.items() if (value := fact.of(first)))
    return (
        f"{table}{first.cpu}, {processors(first)}, kernel {panel.kernel}, {where}handler {first.handler}, {what}"
        f"{first.metric} in {first.unit}{indication}"
    )


def _outcomes(cells: Sequence[CellRecord], name: _Name) -> tuple[Sequence[str], Sequence[str]]:
    """Sentences on what calls of valid cells return: first those of calls that failed, then the others.

    A system call's is ``close(-1): always EBADF``, a user's function's ``mine.c: ioctl always ENOTTY; read always 1``.
    Where cells of one call differ, ``name`` names the cells.
    """
    calls: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.status == "ok" and parameters.OUTCOME in cell.parameters:
            arguments, call = (parameters.ARGUMENTS.of(cell) or "...").strip("[]"), parameters.CALL.of(cell)
            title = benchmark_title(cell) if call is None else f"{call}({arguments})"
            calls.setdefault(title, []).append(cell)
    failing: list[str] = []
    others: list[str] = []
    for call, group in calls.items():
        has_failed = any(parameters.RESULT_FAILED.of(cell) for cell in group)
        by_text: dict[str, list[str]] = {}
        for cell in group:
            by_text.setdefault(parameters.OUTCOME.of(cell) or "", []).append(name(cell))
        if len(by_text) == 1:
            texts = list(by_text)
        elif has_failed:
            texts = [f"{text} ({', '.join(dict.fromkeys(names))})" for text, names in by_text.items()]
        else:
            texts = ["always success, with different results"]  # process numbers, addresses
        (failing if has_failed else others).extend(f"{call}: {text}." for text in texts)
    return failing, others


class Layout:
    """The common part of all layouts: the cells, in parts with their own evidence, the cells' names and footnotes."""

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
    is_counted = panel.first.clock == "instructions" and not panel.times
    more = " Ratios in two different units are not expected to agree." if is_counted else ""
    return f"{unit_meaning(panel)}{more}"


def _shown(cell: CellRecord | None, value_of: _Figure = _overhead, footnotes: Footnotes | None = None) -> str:
    if cell is None:
        return NOTHING
    marks = "" if footnotes is None else footnotes.marks(cell)
    return (cell.status if cell.status != "ok" else figure(value_of(cell), cell.unit)) + marks


def _spent(name: str) -> _Figure:
    return lambda cell: cell.purposes.get(name, 0.0) if cell.purposes else None


def _varying(cells: Sequence[CellRecord]) -> Iterator[str]:
    if any(cell.calls_vary and cell.overhead for cell in cells):
        yield "Where calls vary, the overhead is what the probe adds to calls that take the same path."


def _purpose_names(cells: Sequence[CellRecord]) -> Sequence[str]:
    return in_order([name for cell in cells for name in cell.purposes])


def _purpose_meaning(cells: Sequence[CellRecord]) -> Iterator[str]:
    if _purpose_names(cells):
        yield "The purposes add up to the overhead, to the instruction; other is what the catalogue assigns to none."


def purpose_sentences(cells: Sequence[CellRecord], name: _Name) -> Iterator[str]:
    """A sentence on the purposes of each cell, for tables that have no rows for them."""
    for cell in cells:
        if cell.purposes:
            parts = [
                f"{purpose_title(one)} {figure(cell.purposes[one], cell.unit)}" for one in in_order([*cell.purposes])
            ]
            yield f"{name(cell)}: {', '.join(parts)}."
    yield from _purpose_meaning(cells)


def shows_points(panel: Panel) -> bool:
    """Whether the lab found the panel's points: the functions that calls enter, or the instructions of one."""
    return parameters.POINTS in panel.first.parameters


def points_sheet(panel: Panel) -> Sheet:
    """A row for each point, a column for each probe."""
    at_points: dict[str, dict[str, CellRecord]] = {}
    for cell in panel.cells:
        at_points.setdefault(_at(cell), {})[cell.probe] = cell
    by_point = {at: by_probe for at, by_probe in at_points.items() if BASELINE in by_probe}
    cells = [cell for cell in panel.cells if _at(cell) in by_point]
    refused: dict[str, dict[str, None]] = {}
    for cell in panel.cells:
        if _at(cell) not in by_point:
            refused.setdefault(cell.reason or cell.status, {})[_at(cell)] = None
    layout, function = Layout([cells], _name_of_reason, partial(other_kernel, panel)), _function(panel.first)
    names = {cell.probe: probe_title(cell) for cell in cells if cell.probe != BASELINE}
    headings = [f"{'entered' if function is None else 'executed'} by a call", *names.values()]
    rows = [
        Row(at, [_hits(by_probe), *(_shown(by_probe.get(probe), footnotes=layout.footnotes) for probe in names)])
        for at, by_probe in by_point.items()
    ]
    timed = [
        Row(at, [NOTHING, *(_time(panel, by_probe.get(probe)) for probe in names)], "italic")
        for at, by_probe in by_point.items()
        if any(panel.time(cell) for cell in by_probe.values())
    ]
    title = Row("modelled(nsec)", [""] * len(headings), "bold italic")
    shown = " or ".join(
        map(number, sorted({one.value for one in cells if one.probe == BASELINE and one.value is not None}))
    )
    calls = f"a call of {called(panel.first)}"
    each = f"function that {calls} enters" if function is None else f"instruction of {function} in {calls}"
    return layout.sheet(
        f"Overhead of probes on {cpu(panel.first.cpu).title}, at each {each}",
        [conditions(panel), *([f"a call takes {shown} instructions without a probe"] if shown else [])],
        Grid(
            headings, [rows or [Row("no function", [NOTHING] * len(headings))], *([[title, *timed]] if timed else [])]
        ),
        [
            unit_meaning(panel),
            *times_meaning([panel], name_at_point),
            *(f"Not probed: {', '.join(functions)}: {reason}." for reason, functions in refused.items()),
        ],
    )


def _time(panel: Panel, cell: CellRecord | None) -> str:
    """A cell's modelled overhead with its band."""
    overhead, low, high = time_figures(None if cell is None else panel.time(cell))
    return overhead if overhead == NOTHING else f"{overhead} ({low} to {high})"


def _hits(by_probe: Mapping[str, CellRecord]) -> str:
    proofs = [cell.evidence for cell in by_probe.values() if cell.probe != BASELINE and cell.evidence is not None]
    return str(proofs[0].hits_per_call) if proofs else NOTHING


def _at(cell: CellRecord) -> str:
    return parameters.AT.of(cell) or ""


def _name_of_reason(cell: CellRecord) -> str:
    # Many instructions share one reason.
    is_one_of_many = cell.status == "unsupported" and _function(cell) is not None
    return probe_title(cell) if cell.status == "ok" or is_one_of_many else name_at_point(cell)


def name_at_point(cell: CellRecord) -> str:
    """The cell's probe and point, for tables of points."""
    return f"{probe_title(cell)} at {_at(cell)}"


def _function(cell: CellRecord) -> str | None:
    """The function whose instructions are probed; None where each point is a function."""
    function, each, _ = (parameters.POINTS.of(cell) or "").partition("+*")
    return function if each else None


_COMPARED_WITH = "djprobe"


def list_sheet(panel: Panel) -> Sheet:
    """A column for each probe, as in the lists of 2005: samples, their average, the overhead, what was published."""
    cells = panel.cells
    overview = [f"Overhead of probes on {cpu(panel.first.cpu).title}", conditions(panel)]
    title, *facts = [panel.reference.title, *overview] if panel.reference else overview
    layout = Layout([cells], probe_title, partial(other_kernel, panel))
    marks = layout.footnotes.marks
    blocks = [
        list(_measured(cells, layout.footnotes, _COUNTED if panel.times else "")),
        *([list(_modelled(panel))] if any(map(panel.time, cells)) else []),
        *(list(_published(cells, table)) for table in panel.references),
    ]
    return layout.sheet(
        title,
        facts,
        Grid([heading(cell) + (marks(cell) if cell.status == "ok" else "") for cell in cells], blocks),
        [
            *(source(table) for table in panel.references),
            _comparison_meaning(panel) if panel.references else unit_meaning(panel),
            *times_meaning([panel], probe_title),
            *_varying(cells),
            *_purpose_meaning(cells),
            *unknown_traps(cells, probe_title),
        ],
        heading,
    )


_COUNTED, _MODELLED = "counted ", "modelled "
"""What tells apart figures of one table."""


def _measured(cells: Sequence[CellRecord], footnotes: Footnotes, kind: str) -> Iterator[Row]:
    first, unit = cells[0], unit_name(cells[0].unit)
    samples = [[figure(sample, cell.unit) for sample in cell.samples] for cell in cells]
    yield from _sample_rows(f"{benchmark_title(first)}(sample", samples)
    centre = "average" if centre_of(first.clock, first.metric) is mean else "median"
    values = [
        cell.status + footnotes.marks(cell) if cell.value is None else figure(cell.value, cell.unit) for cell in cells
    ]
    yield Row(f"{centre}({unit})", values)
    if any(parameters.PLAIN.of(cell) is not None for cell in cells):
        yield Row("  without the probe, in turn", [figure(parameters.PLAIN.of(cell), cell.unit) for cell in cells])
    yield Row(f"overhead({unit})", [figure(cell.overhead, cell.unit) for cell in cells], style="bold")
    for name in _purpose_names(cells):
        yield Row(f"  {purpose_title(name)}", [figure(_spent(name)(cell), cell.unit) for cell in cells])
    if any(cell.interval and cell.interval[0] != cell.interval[1] for cell in cells):
        for end, label in enumerate(("from", "to")):
            ends = [cell.interval[end] if cell.interval and cell.probe != BASELINE else None for cell in cells]
            yield Row(f"  95 % {label}({unit})", [figure(value, first.unit) for value in ends])
    base = next((cell for cell in cells if cell.probe == _COMPARED_WITH and cell.overhead is not None), None)
    if base is not None and len(cells) > 1:
        yield Row(f"{kind}ratio to {_COMPARED_WITH}", [_ratio(cell, base) for cell in cells])
    attached = [parameters.ATTACHED.of(cell) or NOTHING for cell in cells]
    if any(text != NOTHING for text in attached):
        yield Row(f"attached by {_bpftrace(cells)}", attached)
    traps = []
    for cell in cells:
        count, lacking = traps_per_hit(cell), UNKNOWN if has_unknown_traps(cell) else NOTHING
        traps.append(lacking if count is None else number(count))
    if any(text != NOTHING for text in traps):
        yield Row("int3 a hit", traps)


def _modelled(panel: Panel) -> Iterator[Row]:
    times = [panel.time(cell) for cell in panel.cells]
    overheads, *band = zip(*(time_figures(one, marked=False) for one in times), strict=True)
    yield Row(f"{_MODELLED}overhead(nsec)", overheads, style="bold italic")
    yield from (Row(f"{end}(nsec)", texts, "italic", depth=2) for end, texts in zip(("from", "to"), band, strict=True))
    errors = [None if one is None else one.error for one in times]
    if any(error is not None for error in errors):
        texts = [NOTHING if error is None else f"{100 * error:+.1f} %" for error in errors]
        yield Row("error to published", texts, "italic", depth=2)
    roles = [None if one is None or one.role is None else one.is_fit for one in times]
    if any(roles):
        yield Row("a fit", [NOTHING if one is None else "yes" if one else "no" for one in roles], "italic", depth=2)
    by_probe = {cell.probe: one for cell, one in zip(panel.cells, times, strict=True)}
    if by_probe.get(_COMPARED_WITH) is not None and len(times) > 2:
        ratios = [_time_ratio(one, by_probe[_COMPARED_WITH]) for one in times]
        yield Row(f"{_MODELLED}ratio to {_COMPARED_WITH}", ratios, "italic")


def _time_ratio(time: ModelledCell | None, base: ModelledCell | None) -> str:
    if time is None or base is None:
        return NOTHING
    ratio = ratio_figure(time.overhead, base.overhead)
    return f"{ratio} {FIT}" if time is not base and time.is_fit and base.is_fit else ratio


def _bpftrace(cells: Sequence[CellRecord]) -> str:
    versions = dict.fromkeys(version for cell in cells if (version := parameters.BPFTRACE.of(cell)) is not None)
    return " ".join(["bpftrace", *versions])


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


# Kernels side by side: a row for each probe, a column for each kernel, and the difference to the first kernel.
#
# Only exact counts are printed like this, since any difference between them is real. Times have a table for each
# kernel, with their intervals.


def kernels_sheet(panels: Sequence[Panel]) -> Sheet:
    """A panel of each kernel, side by side."""
    first, parts = panels[0].first, [panel.cells for panel in panels]
    layout = Layout(parts, lambda cell: f"{probe_title(cell)} on {cell.kernel}")
    # The words alone where they tell a kernel from the first one.
    names = [panel.kernel.removeprefix(first.kernel if "+" not in first.kernel else "") for panel in panels[1:]]
    headings = [name if name.startswith("+") else panel.kernel for name, panel in zip(names, panels[1:], strict=True)]
    others = [text for heading in headings for text in (heading, "difference", "")]
    return layout.sheet(
        f"Overhead of probes on {cpu(first.cpu).title}, on {len(panels)} kernels",
        list(_conditions_on_kernels(panels)),
        Grid([panels[0].kernel, *others], list(_kernel_blocks(panels, layout.footnotes))),
        [
            f"Differences are to {panels[0].kernel}. {unit_meaning(panels[0])}",
            *times_meaning(panels, lambda cell: f"{probe_title(cell)} on {cell.kernel}"),
            *_varying(layout.cells),
            *_purpose_meaning(layout.cells),
        ],
    )


def _conditions_on_kernels(panels: Sequence[Panel]) -> Iterator[str]:
    first = panels[0].first
    table, what = f"{first.table}: " if first.table else "", _at_named_point(first, benchmark_title(first))
    yield f"{table}{first.cpu}, {processors(first)}, handler {first.handler}, {what}, {first.metric} in {first.unit}"
    releases = {panel.kernel: parameters.KERNEL_RELEASE.of(panel.first) for panel in panels}
    yield from (f"{kernel}: linux-{release}" for kernel, release in releases.items() if release)


def _kernel_blocks(panels: Sequence[Panel], footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    unit, blank = unit_name(panels[0].first.unit), [""] * (3 * len(panels) - 2)
    by_probe = [{cell.probe: cell for cell in panel.cells} for panel in panels]
    firsts = {cell.probe: cell for panel in reversed(panels) for cell in panel.cells}
    probes = dict.fromkeys(cell.probe for panel in panels for cell in panel.cells)
    rows = {probe: [panel.get(probe) for panel in by_probe] for probe in probes}
    titles = {probe: probe_title(firsts[probe]) for probe in probes}
    values = [
        Row(titles[probe], list(_values(cells, lambda cell: cell.value, footnotes))) for probe, cells in rows.items()
    ]
    yield [Row(f"a call({unit})", blank, "bold"), *values]
    overheads: list[Row] = []
    for probe, cells in rows.items():
        if probe != BASELINE and any(cell and cell.overhead is not None for cell in cells):
            names = _purpose_names([cell for cell in cells if cell is not None])
            overheads.append(Row(titles[probe], list(_values(cells, _overhead))))
            overheads += [Row(f"  {purpose_title(name)}", list(_values(cells, _spent(name)))) for name in names]
    if overheads:
        yield [Row(f"overhead({unit})", blank, "bold"), *overheads]
    times = {
        probe: [None if cell is None else panel.time(cell) for panel, cell in zip(panels, cells, strict=True)]
        for probe, cells in rows.items()
    }
    timed = [row for probe, of in times.items() if any(of) for row in _time_rows(titles[probe], of)]
    if timed:
        yield [Row("modelled(nsec)", blank, "bold italic"), *timed]


def _time_rows(title: str, times: Sequence[ModelledCell | None]) -> Iterator[Row]:
    base = times[0] and times[0].overhead
    overheads, bands = list[str](), list[str]()
    for index, time in enumerate(times):
        overhead, low, high = time_figures(time)
        overheads.append(overhead)
        bands.append(NOTHING if time is None else f"{low} to {high}")
        if index:
            change = None if time is None or time.overhead is None or not base else time.overhead - base
            overheads += (f"{change:+.1f}", percent_of(change, base)) if change is not None and base else [NOTHING] * 2
            bands += ("", "")
    yield Row(title, overheads, "italic")
    yield Row("from, to", bands, "italic", depth=2)


def _values(cells: Sequence[CellRecord | None], value_of: _Figure, footnotes: Footnotes | None = None) -> Iterator[str]:
    base = None if cells[0] is None else value_of(cells[0])
    for index, cell in enumerate(cells):
        yield _shown(cell, value_of, footnotes)
        value = None if cell is None else value_of(cell)
        if index and (cell is None or value is None or base is None):
            yield from (NOTHING, NOTHING)
        elif index and cell is not None and value is not None and base is not None:
            yield signed_figure(value - base, cell.unit)
            yield percent_of(value - base, base) if base > 0 else NOTHING


# bpftrace one-liners: a row for each, and for each kernel the cost of a hit and what the kernel says is attached.


def one_liners_sheet(panels: Sequence[Panel]) -> Sheet:
    """A panel of each kernel, side by side, with what bpftrace attaches there."""
    first, parts = panels[0].first, [panel.cells for panel in panels]
    layout = Layout(parts, lambda cell: f"{probe_title(cell)} on {cell.kernel}")
    timed = ["modelled(nsec)"] if any(panel.time(cell) for panel in panels for cell in panel.cells) else []
    width = 2 + len(timed)
    rows: dict[str, list[str]] = {}
    for index, cell in ((index, cell) for index, part in enumerate(parts) for cell in part):
        columns = rows.setdefault(probe_title(cell), [NOTHING] * (width * len(panels)))
        value_of: _Figure = attrgetter("value") if cell.probe == BASELINE else _overhead
        figures = [_shown(cell, value_of, layout.footnotes), *(_time(panels[index], cell) for _ in timed)]
        columns[width * index : width * (index + 1)] = [*figures, parameters.ATTACHED.of(cell) or NOTHING]
    return layout.sheet(
        f"What bpftrace attaches, and the overhead of a hit, on {cpu(first.cpu).title}",
        [*_conditions_on_kernels(panels), "the baseline's figure is a whole call's"],
        Grid(
            [one for panel in panels for one in (panel.kernel, *timed, f"attached by {_bpftrace(panel.cells)}")],
            [[Row(title, columns) for title, columns in rows.items()]],
            together=width,
        ),
        [
            "The kernel says what is attached; its name is that of the list of probes.",
            unit_meaning(panels[0]),
            *times_meaning(panels, probe_title),
            *purpose_sentences(layout.cells, probe_title),
        ],
    )


def percent_of(difference: float, base: float) -> str:
    """A difference as a percentage of ``base``, with its sign."""
    return f"{100 * difference / base:+.2f} %" if difference else "0 %"


# The layout of the mail of 2009: a row for each probe, and a document's published tables side by side.
#
# Each has measured and published overheads, their ratios to one probe's, and the rates if the document has rates.


@dataclass(frozen=True)
class _Half:
    panel: Panel
    table: ReferenceTable
    cells: dict[str, CellRecord]
    shows_times: bool

    def columns(self, label: str, footnotes: Footnotes) -> dict[str, str]:
        to = self.table.compared_with
        first, cell, base = self.panel.first, self.cells.get(label), self.cells.get(to)
        overhead, compared = (self.table.overhead(one) if one in self.table.columns else None for one in (label, to))
        rate = self.table.rate(label) if label in self.table.rates else NOTHING
        low, high = (None if cell is None or cell.status != "ok" else cell.interval) or (None, None)
        bounds = {"95 % from": figure(low, first.unit), "95 % to": figure(high, first.unit)}
        columns = {
            unit_name(first.unit): _shown(cell, footnotes=footnotes),
            **(bounds if first.clock == "wall" else {}),
            **(self._times(cell, base) if self.shows_times else {}),
            **({f"published {self.table.rate_unit}": rate} if self.table.rates else {}),
            # The mail prints every figure to two decimals.
            f"published {unit_name(self.table.unit)}": NOTHING if overhead is None else f"{overhead:.2f}",
            f"{_COUNTED if self.shows_times else ''}ratio": _ratio(cell, base),
            "published ratio": ratio_figure(overhead, compared),
        }
        return {f"{self.table.name} {heading}": text for heading, text in columns.items()}

    def _times(self, cell: CellRecord | None, base: CellRecord | None) -> dict[str, str]:
        unit = "us" if self.table.unit == "us" else "ns"
        time, other = (None if one is None else self.panel.time(one) for one in (cell, base))
        overhead, low, high = time_figures(time, unit)
        band = NOTHING if time is None else f"{low} to {high}"
        return {f"modelled {unit_name(unit)}": overhead, "band": band, "modelled ratio": _time_ratio(time, other)}

    def conditions(self, footnotes: Footnotes) -> str:
        baselines = [
            (cell.kernel if self.panel.elsewhere(cell) else heading(cell))
            + f"{footnotes.marks(cell)} "
            + (figure(cell.value, cell.unit) if cell.value is not None else cell.status)
            for cell in self.panel.cells
            if cell.probe == BASELINE
        ]
        return f"{conditions(self.panel)}; baseline {', '.join(baselines) or 'not measured'}"


def mail_sheet(panels: Sequence[Panel]) -> Sheet:
    """The panels of the mail's published tables, side by side."""
    shows_times = any(panel.time(cell) for panel in panels for cell in panel.cells)
    halves = [
        _Half(panel, panel.reference, {mail_label(cell): cell for cell in probed(panel)}, shows_times)
        for panel in panels
        if panel.reference is not None
    ]
    owner = {cell.id: half for half in halves for cell in half.panel.cells}

    def name(cell: CellRecord) -> str:
        label = probe_title(cell) if cell.probe == BASELINE else mail_label(cell)
        return f"{owner[cell.id].table.name} {label}"

    layout = Layout([half.panel.cells for half in halves], name, lambda cell: other_kernel(owner[cell.id].panel, cell))
    first, footnotes = halves[0], layout.footnotes
    processors = dict.fromkeys(cpu(half.panel.first.cpu).title for half in halves)
    labels = dict.fromkeys(column for half in halves for column in half.table.columns)
    # The mail separates kprobes and kretprobes, in names such as kprobe+optimized.
    is_split = all("+" in half.table.compared_with for half in halves)
    blocks = [list(labels) for _, labels in groupby(labels, lambda one: is_split and one.partition("+")[0])]
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
        Grid(headings, rows, together=len(headings) // len(halves), narrowest=15),
        [
            *(source(half.table.id) for half in halves),
            _comparison_meaning(first.panel),
            *times_meaning([half.panel for half in halves], name),
            *purpose_sentences(layout.cells, name),
        ],
    )


def mail_label(cell: CellRecord) -> str:
    """The document's name of the cell's probe."""
    return published_column(cell.probe) or cell.probe


# List 15 of the djprobe document: the capabilities of each probe. The document's text is above the measured result.

CAPABILITIES_TITLE = "List 15 Probes' function"
_probe = attrgetter("probe")


def shows_capabilities(panel: Panel) -> bool:
    """Whether all probes of the panel verify capabilities."""
    cells = probed(panel)
    return bool(cells) and all(cell.probe in capability_grants() for cell in cells)


def capability_sheet(panel: Panel) -> Sheet:
    """A row for each capability, a column for each probe."""
    cells = probed(panel)
    layout, first, deviating = Layout([cells], _probe), panel.first, deviations(cells)
    blocks = list(_capability_blocks({cell.probe: cell for cell in cells}, layout.footnotes))
    return layout.sheet(
        CAPABILITIES_TITLE,
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
        # The document's text takes as many rows as it has lines.
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
    *_, grant = capability_grants()[cell.probe]
    if cell.status == "ok":
        # Where the document grants nothing, the handler counts the hits in which the capability was missing.
        return grant.grants or grant.shown == "refusal"
    return False if cell.status == "unsupported" and grant.shown == "refusal" else None


def deviations(cells: Sequence[CellRecord]) -> str | None:
    """A sentence on how the results differ from the document; None where they agree and some are unknown."""
    wrong = []
    for cell in cells:
        probe, capability, grant = capability_grants()[cell.probe]
        if _has(cell) not in (None, grant.grants):
            wrong.append(f"{probe}: {capability.title}")
    if wrong:
        return f"Different from the document: {', '.join(wrong)}."
    complete = all(_has(cell) is not None for cell in cells) and len(cells) == len(capability_grants())
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
