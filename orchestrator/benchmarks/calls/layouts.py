# SPDX-License-Identifier: GPL-2.0-only
"""The layouts of tables of calls: lists of 2005, all functions that calls enter, kernels side by side.

One column per probe with the unprobed kernel first, and a row for each sample, the average and the overhead. The
published figures are below the measured ones in the same rows and columns, in their own unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.benchmarks.calls.benchmarks import capability_list, capability_names
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE, probe_in_catalogue
from orchestrator.catalog.words import in_order, purpose_title
from orchestrator.report.kind import (
    INDICATION,
    Group,
    Panel,
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
    figure,
    hides_traps,
    number,
    proof_lists,
    published_figure,
    ratio_figure,
    traps_per_hit,
    unit_name,
    untold_traps,
)
from orchestrator.results.contract import CellRecord, centre_of
from orchestrator.results.statistics import mean

# Titles and sentences that the layouts of calls share.

_TWO_UNITS = "Ratios in two different units are not expected to agree."


def benchmark_title(cell: CellRecord) -> str:
    """Return what the cell runs, in a word: the user's file or the system call where the experiment names it."""
    if cell.benchmark == "gtodbench":
        return cell.benchmark
    return str(cell.parameters.get("workload") or cell.parameters.get("call") or cell.benchmark)


def called(cell: CellRecord) -> str:
    """Return what each call of the cell runs, and the place that it is probed at where the experiment names it."""
    title = benchmark_title(cell)
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


def conditions(panel: Panel) -> str:
    """Return the line with the conditions that the panel's cells share."""
    first = panel.first
    table = f"{first.table}: " if first.table else ""
    at = None if "points" in first.parameters else first.parameters.get("at")
    what = f"{benchmark_title(first)} at {at}, " if at else ""
    indication = f"; {INDICATION}" if panel.emulated else ""
    image, channel = first.parameters.get("image"), first.parameters.get("channel")
    modules = first.parameters.get("kernel_modules")
    named = (("image", image), ("channel", channel), ("with its modules", modules))
    where = "".join(f"{name} {value}, " for name, value in named if value)
    return (
        f"{table}{first.cpu}, {processors(first)}, kernel {panel.kernel}, {where}handler {first.handler}, {what}"
        f"{first.metric} in {first.unit}{indication}"
    )


@dataclass(frozen=True)
class Outcomes:
    """What the calls of a table returned, in sentences; ``failing`` are those of cells with calls that failed."""

    failing: Sequence[str]
    others: Sequence[str]


def outcomes(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Outcomes:
    """Return the outcome of each system call of the valid cells: ``close(-1): always EBADF``.

    Of a user's function, that of its system calls: ``mine.c: ioctl always ENOTTY; read always 1``.

    Where cells of one call differ in it, ``name`` says whose it is. Runs of earlier versions have no outcomes.
    """
    calls: dict[str, list[CellRecord]] = {}
    for cell in cells:
        if cell.status == "ok" and "outcome" in cell.parameters:
            calls.setdefault(_calls(cell), []).append(cell)
    sentences = {call: [f"{call}: {text}." for text in _outcomes(group, name)] for call, group in calls.items()}
    return Outcomes(
        failing=[text for call, texts in sentences.items() if _has_failed(calls[call]) for text in texts],
        others=[text for call, texts in sentences.items() if not _has_failed(calls[call]) for text in texts],
    )


def _calls(cell: CellRecord) -> str:
    if "call" not in cell.parameters:
        return benchmark_title(cell)
    arguments = str(cell.parameters.get("arguments", "[...]"))
    return f"{cell.parameters['call']}({arguments.strip('[]')})"


def _has_failed(group: Sequence[CellRecord]) -> bool:
    return any(cell.parameters.get("result_failed") for cell in group)


def _outcomes(group: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Sequence[str]:
    by_text: dict[str, list[CellRecord]] = {}
    for cell in group:
        by_text.setdefault(str(cell.parameters["outcome"]), []).append(cell)
    if len(by_text) == 1:
        return list(by_text)
    if not _has_failed(group):
        return ["always success, with different results"]  # process numbers, addresses
    return [f"{text} ({', '.join(dict.fromkeys(map(name, those)))})" for text, those in by_text.items()]


def comparison_meaning(panel: Panel) -> str:
    """Return the sentences on the panel's unit where published figures, in nanoseconds, stand beside."""
    meaning = unit_meaning(panel)
    return f"{meaning} {_TWO_UNITS}" if panel.first.clock == "instructions" else meaning


# A table of all functions that calls enter: a row for each, with the overhead of each probe there.


def shows_points(panel: Panel) -> bool:
    """Whether the panel's points were found: the functions that calls enter, or the instructions of one."""
    return "points" in panel.first.parameters


def points_sheet(panel: Panel) -> Sheet:
    """Return the panel with its functions as rows and its probes as columns."""
    probed = {_at(cell) for cell in panel.cells if cell.probe == BASELINE}
    cells = [cell for cell in panel.cells if _at(cell) in probed]
    refused = [cell for cell in panel.cells if _at(cell) not in probed]
    footnotes = Footnotes(cells, _name_of_reason, lambda cell: other_kernel(panel, cell))
    returned = outcomes(cells, _name_of_reason)
    return Sheet(
        title=f"Overhead of probes on {cpu(panel.first.cpu).title}, at each {_points(panel)}",
        facts=[conditions(panel), *_baseline(cells), *returned.failing],
        grid=_grid(cells, footnotes, "entered" if _function(panel.first) is None else "executed"),
        sentences=[unit_meaning(panel), *_refused(refused), *returned.others],
        footnotes=footnotes.all(),
        proofs=proof_lists(cells, _name_of_reason),
    )


def _grid(cells: Sequence[CellRecord], footnotes: Footnotes, reached: str) -> Grid:
    probes = {cell.probe: probe_title(cell) for cell in cells if cell.probe != BASELINE}
    by_point: dict[str, dict[str, CellRecord]] = {}
    for cell in cells:
        by_point.setdefault(_at(cell), {})[cell.probe] = cell
    rows = [
        Row(at, [_hits(by_probe), *(_figure(by_probe.get(probe), footnotes) for probe in probes)])
        for at, by_probe in by_point.items()
    ]
    headings = [f"{reached} by a call", *probes.values()]
    return Grid(headings, [rows or [Row("no function", [NOTHING] * len(headings))]])


def _hits(by_probe: Mapping[str, CellRecord]) -> str:
    """How often a call enters the function or executes the instruction, as the hits prove."""
    for cell in by_probe.values():
        if cell.probe != BASELINE and cell.evidence is not None:
            return str(cell.evidence.hits_per_call)
    return NOTHING


def _figure(cell: CellRecord | None, footnotes: Footnotes) -> str:
    if cell is None:
        return NOTHING
    return (cell.status if cell.status != "ok" else figure(cell.overhead, cell.unit)) + footnotes.marks(cell)


def _baseline(cells: Sequence[CellRecord]) -> Iterator[str]:
    values = {cell.value for cell in cells if cell.probe == BASELINE and cell.value is not None}
    if values:
        shown = " or ".join(number(value) for value in sorted(values))
        yield f"a call takes {shown} instructions without a probe"


def _refused(cells: Sequence[CellRecord]) -> Iterator[str]:
    """A sentence for each reason why functions were not probed."""
    by_reason: dict[str, dict[str, None]] = {}
    for cell in cells:
        by_reason.setdefault(cell.reason or cell.status, {})[_at(cell)] = None
    for reason, functions in by_reason.items():
        yield f"Not probed: {', '.join(functions)}: {reason}."


def _points(panel: Panel) -> str:
    function, calls = _function(panel.first), f"a call of {called(panel.first)}"
    return f"function that {calls} enters" if function is None else f"instruction of {function} in {calls}"


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


# What each probe's overhead is spent on, as rows of a table or as sentences.

_ADD_UP = "The purposes add up to the overhead, to the instruction; other is what the catalogue assigns to none."


def purpose_rows(cells: Sequence[CellRecord]) -> Iterator[Row]:
    """A row for each purpose that a cell has; none where no cell has purposes."""
    for name in purpose_names(cells):
        figures = [figure(cell.purposes.get(name, 0.0), cell.unit) if cell.purposes else NOTHING for cell in cells]
        yield Row(f"  {purpose_title(name)}", figures)


def purpose_meaning(cells: Sequence[CellRecord]) -> Iterator[str]:
    """The sentence on the rows, where there are any."""
    if purpose_names(cells):
        yield _ADD_UP


def purpose_sentences(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Iterator[str]:
    """The same as rows in a sentence for each cell, for tables whose rows are something else."""
    for cell in cells:
        if cell.purposes:
            parts = [
                f"{purpose_title(one)} {figure(cell.purposes[one], cell.unit)}" for one in in_order([*cell.purposes])
            ]
            yield f"{name(cell)}: {', '.join(parts)}."
    yield from purpose_meaning(cells)


def purpose_names(cells: Sequence[CellRecord]) -> Sequence[str]:
    """The purposes that a cell has, in the order in which they are printed."""
    return in_order([name for cell in cells for name in cell.purposes])


# A table in the layout of the 2005 document's lists.

_COMPARED_WITH = "djprobe"


def list_sheet(panel: Panel) -> Sheet:
    """Return the panel as one list."""
    overheads_of = f"Overhead of probes on {cpu(panel.first.cpu).title}"
    overview = [overheads_of, conditions(panel)]
    title, *facts = [panel.reference.title, *overview] if panel.reference else overview
    footnotes = Footnotes(panel.cells, probe_title, lambda cell: other_kernel(panel, cell))
    returned = outcomes(panel.cells, heading)
    blocks = [_measured(panel.cells, footnotes), *(_published(panel.cells, table) for table in panel.references)]
    headings = [heading(cell) + (footnotes.marks(cell) if cell.status == "ok" else "") for cell in panel.cells]
    return Sheet(
        title=title,
        facts=[*facts, *returned.failing],
        grid=Grid(headings, blocks),
        sentences=[
            *(source(table) for table in panel.references),
            comparison_meaning(panel) if panel.references else unit_meaning(panel),
            *purpose_meaning(panel.cells),
            *untold_traps(panel.cells, probe_title),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=proof_lists(panel.cells, probe_title),
    )


def _measured(cells: Sequence[CellRecord], footnotes: Footnotes) -> list[Row]:
    first = cells[0]
    unit = unit_name(first.unit)
    rows = [
        Row(
            f"{benchmark_title(first)}(sample{index + 1})",
            [figure(cell.samples[index], cell.unit) if index < len(cell.samples) else NOTHING for cell in cells],
        )
        for index in range(max(len(cell.samples) for cell in cells))
    ]
    centres = [
        f"{cell.status}{footnotes.marks(cell)}" if cell.value is None else figure(cell.value, cell.unit)
        for cell in cells
    ]
    rows.append(Row(f"{'average' if centre_of(first.clock, first.metric) is mean else 'median'}({unit})", centres))
    overheads = [figure(cell.overhead, cell.unit) for cell in cells]
    rows.append(Row(f"overhead({unit})", overheads, style="bold"))
    rows += purpose_rows(cells)
    if any(cell.interval and cell.interval[0] != cell.interval[1] for cell in cells):
        rows += _bounds(cells, unit)
    rows += _measured_ratios(cells)
    traps = [_traps(cell) for cell in cells]
    if any(text != NOTHING for text in traps):
        rows.append(Row("int3 a hit", traps))
    return rows


def _traps(cell: CellRecord) -> str:
    count = traps_per_hit(cell)
    if count is not None:
        return number(count)
    return UNKNOWN if hides_traps(cell) else NOTHING


def _bounds(cells: Sequence[CellRecord], unit: str) -> Iterator[Row]:
    """The ends of the overheads' 95 % intervals."""
    for end, label in enumerate(("from", "to")):
        ends = [cell.interval[end] if cell.interval and cell.probe != BASELINE else None for cell in cells]
        yield Row(f"  95 % {label}({unit})", [figure(value, cells[0].unit) for value in ends])


def _measured_ratios(cells: Sequence[CellRecord]) -> Iterator[Row]:
    base = next((cell for cell in cells if cell.probe == _COMPARED_WITH and cell.overhead is not None), None)
    if base is None or len(cells) == 1:
        return
    ratios = [
        UNDECIDED
        if cell.overhead is not None and "none" in (cell.verdict, base.verdict) and cell.probe != BASELINE
        else ratio_figure(None if cell.probe == BASELINE else cell.overhead, base.overhead)
        for cell in cells
    ]
    yield Row(f"ratio to {_COMPARED_WITH}", ratios)


def _published(cells: Sequence[CellRecord], table: str) -> list[Row]:
    unit = unit_name(published_unit(cells, table))
    columns = [published(cell, table) for cell in cells]
    rows = [
        Row(
            f"published(sample{index + 1})",
            [published_figure(one.samples[index]) if index < len(one.samples) else NOTHING for one in columns],
        )
        for index in range(max(len(one.samples) for one in columns))
    ]
    rows.append(Row(f"published average({unit})", [published_figure(one.average) for one in columns]))
    overheads = [published_figure(one.overhead) for one in columns]
    rows.append(Row(f"published overhead({unit})", overheads, style="bold"))
    compared = [one.overhead for cell, one in zip(cells, columns, strict=True) if cell.probe == _COMPARED_WITH]
    if compared and len(cells) > 1:
        ratios = [
            ratio_figure(None if cell.probe == BASELINE else one.overhead, compared[0])
            for cell, one in zip(cells, columns, strict=True)
        ]
        rows.append(Row(f"published ratio to {_COMPARED_WITH}", ratios))
    return rows


# Kernels side by side: a row for each probe, a column for each kernel, and what the others take more than the first.
#
# For exact counts alone: every difference between them is one. Times have a table for each kernel, with their
# intervals.

_APART = ("call", "workload", "at", "image", "channel", "kernel_modules")
_Figure = Callable[[CellRecord], float | None]


def is_comparable(panel: Panel) -> bool:
    """Whether a panel may stand beside one of another kernel: exact, of one kernel, and in no document's layout."""
    probes = [cell.probe for cell in panel.cells]
    return (
        panel.first.clock == "instructions"
        and not panel.references
        and len(set(probes)) == len(probes)
        and not any(panel.elsewhere(cell) for cell in panel.cells)
        and all(len(set(cell.samples)) <= 1 for cell in panel.cells)
    )


def differs_in_kernel_only(panel: Panel, group: Group) -> bool:
    """Whether the panel has the group's cells on a kernel that the group does not have."""
    if panel.first.parameters.get("at") != group[0].first.parameters.get("at"):
        return False
    return _apart(panel) == _apart(group[0]) and all(panel.kernel != other.kernel for other in group)


def _apart(panel: Panel) -> tuple[object, ...]:
    first = panel.first
    where = (first.table, first.cpu, first.smp, first.handler)
    return *where, first.benchmark, first.metric, *parameters(first, _APART)


def kernels_sheet(group: Group) -> Sheet:
    """Return comparable panels that differ in their kernels only as one table."""
    first, cells = group[0].first, [cell for panel in group for cell in panel.cells]
    footnotes = Footnotes(cells, _name_on_kernel, lambda _: None)
    returned = outcomes(cells, _name_on_kernel)
    table, at = f"{first.table}: " if first.table else "", first.parameters.get("at")
    what = f"{benchmark_title(first)} at {at}" if at else benchmark_title(first)
    return Sheet(
        title=f"Overhead of probes on {cpu(first.cpu).title}, on {len(group)} kernels",
        facts=[
            f"{table}{first.cpu}, {processors(first)}, handler {first.handler}, {what}, {first.metric} in {first.unit}",
            *(f"{panel.kernel}: linux-{release}" for panel in group if (release := _release(panel))),
            *returned.failing,
        ],
        grid=Grid(_headings(group), list(_blocks(group, footnotes)), together=1),
        sentences=[
            f"Differences are to {group[0].kernel}. {unit_meaning(group[0])}",
            *purpose_meaning(cells),
            *returned.others,
        ],
        footnotes=footnotes.all(),
        proofs=[proofs for panel in group for proofs in proof_lists(panel.cells, _name_on_kernel)],
    )


def kernel_findings(group: Group) -> Iterator[Finding]:
    """The cell that differs most from that of the first kernel; that none does."""
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
    share = f" ({_percent(difference, before)})" if before > 0 else ""
    more = f"{_signed(difference, cell.unit)} {unit_name(cell.unit)} a call{share}"
    sentence = f"Largest difference from {group[0].kernel} to {cell.kernel}{of_place}: {probe_title(cell)}, {more}."
    yield Finding(Rank.DIFFERENT, sentence, abs(difference) / before if before > 0 else 0.0)


def _headings(group: Group) -> list[str]:
    first, *others = [panel.kernel for panel in group]
    return [first, *(heading for kernel in others for heading in (kernel, "difference", ""))]


def _blocks(group: Group, footnotes: Footnotes) -> Iterator[Sequence[Row]]:
    unit = unit_name(group[0].first.unit)
    by_probe = [{cell.probe: cell for cell in panel.cells} for panel in group]
    probes = list(dict.fromkeys(cell.probe for panel in group for cell in panel.cells))
    rows = [[panel.get(probe) for panel in by_probe] for probe in probes]
    blank = [""] * len(_headings(group))
    yield [
        Row(f"a call({unit})", blank, "bold"),
        *(Row(_title(cells), _values(cells, lambda cell: cell.value, footnotes)) for cells in rows),
    ]
    probed = [cells for cells in rows if any(cell and cell.overhead is not None for cell in cells)]
    probed = [cells for cells in probed if _first(cells).probe != BASELINE]
    if probed:
        overheads = [Row(f"overhead({unit})", blank, "bold")]
        for cells in probed:
            overheads.append(Row(_title(cells), _values(cells, lambda cell: cell.overhead)))
            overheads += _purposes(cells)
        yield overheads


def _purposes(cells: Sequence[CellRecord | None]) -> Iterator[Row]:
    for name in purpose_names([cell for cell in cells if cell is not None]):

        def spent(cell: CellRecord, name: str = name) -> float | None:
            return cell.purposes.get(name, 0.0) if cell.purposes else None

        yield Row(f"  {purpose_title(name)}", _values(cells, spent))


def _values(cells: Sequence[CellRecord | None], value_of: _Figure, footnotes: Footnotes | None = None) -> list[str]:
    """The figures of one row: the first kernel's, and for each other one its own, the difference, and per cent."""
    base = None if cells[0] is None else value_of(cells[0])
    texts = [_shown(cells[0], base, footnotes)]
    for cell in cells[1:]:
        value = None if cell is None else value_of(cell)
        texts.append(_shown(cell, value, footnotes))
        if cell is None or value is None or base is None:
            texts += [NOTHING, NOTHING]
        else:
            difference = value - base
            texts += [_signed(difference, cell.unit), _percent(difference, base) if base > 0 else NOTHING]
    return texts


def _shown(cell: CellRecord | None, value: float | None, footnotes: Footnotes | None) -> str:
    if cell is None:
        return NOTHING
    marks = "" if footnotes is None else footnotes.marks(cell)
    return (cell.status if cell.status != "ok" else figure(value, cell.unit)) + marks


def _signed(difference: float, unit: str) -> str:
    return ("+" if difference > 0 else "") + figure(difference, unit)


def _percent(difference: float, base: float) -> str:
    return f"{100 * difference / base:+.2f} %" if difference else "0 %"


def _first(cells: Sequence[CellRecord | None]) -> CellRecord:
    return next(cell for cell in cells if cell is not None)


def _title(cells: Sequence[CellRecord | None]) -> str:
    return probe_title(_first(cells))


def _release(panel: Panel) -> str | None:
    release = panel.first.parameters.get("kernel_release")
    return None if release is None else str(release)


def _name_on_kernel(cell: CellRecord) -> str:
    return f"{probe_title(cell)} on {cell.kernel}"
