# SPDX-License-Identifier: GPL-2.0-only
"""The report of whole-system workloads: a row for each kernel and probe, compared with one baseline."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchestrator.benchmarks.system.workloads import PublishedSystem, PublishedWork, published_systems, system_workload
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.program import PROGRAM
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.kind import Group, Panel, file_name, parameters, processors, unit_meaning
from orchestrator.report.sheet import (
    NOTHING,
    Finding,
    Footnotes,
    Grid,
    Proof,
    ProofList,
    Rank,
    Row,
    Sheet,
    listed,
    number,
    published_figure,
)
from orchestrator.results.contract import CellRecord

# How the cells of a whole-system workload compare with their baselines and with published figures.

EVENTS = "events_a_run"
"""The parameter of a recording cell: events recorded in a warm run, the median."""


def row_title(panel: Panel, cell: CellRecord) -> str:
    """Return the title of a cell's row: its kernel, its probe, or the A/A boot."""
    aa_boot = cell.parameters.get("again")
    if aa_boot:
        return "A/A boot" if aa_boot == 1 else f"A/A boot {aa_boot}"
    if cell.probe == BASELINE:
        return cell.kernel
    return cell.probe if cell.kernel == panel.kernel else f"{cell.probe}, {cell.kernel}"


def cold_percent(panel: Panel, cell: CellRecord) -> float | None:
    """Return the difference of a cell's cold run to the baseline's, in per cent."""
    cold, base = parameter(cell, "cold"), parameter(panel.first, "cold")
    return None if cold is None or not base else 100 * (cold - base) / base


def percent(cell: CellRecord, value: float | None) -> float | None:
    """Return a part of a cell's work as per cent of the baseline's; None where there is none."""
    if value is None or cell.value is None or cell.overhead is None:
        return None
    base = cell.value - cell.overhead
    return 100 * value / base if base > 0 else None


def parameter(cell: CellRecord, name: str) -> float | None:
    """Return a number among a cell's parameters."""
    value = cell.parameters.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def per_event(panel: Panel, cell: CellRecord) -> float | None:
    """Return the cost of each event recorded in a warm run, over the same kernel without recording."""
    events, own = parameter(cell, EVENTS), own_overhead(panel, cell)
    return own / events if events and own is not None and cell.verdict != "none" else None


def own_overhead(panel: Panel, cell: CellRecord) -> float | None:
    """Return the difference to the baseline of the cell's own kernel; None where that was not measured."""
    own = next((one for one in panel.cells if one.kernel == cell.kernel and _alone(one)), None)
    return None if own is None or own.value is None or cell.value is None else cell.value - own.value


def is_baseline(panel: Panel, cell: CellRecord) -> bool:
    """Whether it is the cell that all others are compared with."""
    return cell.kernel == panel.kernel and _alone(cell)


def _alone(cell: CellRecord) -> bool:
    return cell.probe == BASELINE and not cell.parameters.get("again")


def published_table(cells: Sequence[CellRecord]) -> PublishedSystem | None:
    """Return the published table that the cells are compared with, if there is one."""
    named = next((cell.reference.table for cell in cells if cell.reference), None)
    return published_systems().get(named) if named else None


def published_row(table: PublishedSystem | None, cell: CellRecord) -> PublishedWork | None:
    """Return the published row of a cell; None for an A/A boot."""
    if table is None or cell.parameters.get("again"):
        return None
    return table.row(cell.kernel, cell.probe)


# What a table of whole systems shows: what adds most to a run, what was published of it, what is not decided.


def system_findings(panel: Panel) -> Iterator[Finding]:
    """The findings of one workload on one machine; A/A boots and the baseline add nothing."""
    table = panel.first.table
    place, of_table = (f"{table}: ", f", {table}") if table else ("", "")
    unit = "million instructions" if panel.first.clock == "instructions" else "ms"
    measured = [cell for cell in panel.cells if cell.value is not None]
    compared = [
        cell
        for cell in measured
        if cell.overhead is not None and not is_baseline(panel, cell) and not cell.parameters.get("again")
    ]
    decided = [cell for cell in compared if cell.verdict is None]
    if decided:
        largest = max(decided, key=lambda cell: cell.overhead or 0.0)
        share = percent(largest, largest.overhead) or 0.0
        more = f"{(largest.overhead or 0.0) / _MILLION:+.3f} {unit} a run of {largest.benchmark}, {share:+.3f} %"
        most, name = "Largest overhead" if len(compared) > 1 else "Overhead", row_title(panel, largest)
        yield Finding(Rank.LARGEST, f"{most}{of_table}: {name}, {more}.", share / 100)
        yield from _published_findings(panel, largest, f"{place}{name}", share)
    hidden = [cell for cell in compared if cell.verdict is not None]
    if hidden:
        names = listed([row_title(panel, cell) for cell in hidden])
        sentence = f"Not decided{of_table}: {names}; the difference is no larger than between boots of equal systems."
        yield Finding(Rank.UNDECIDED, sentence, len(hidden) / len(compared))
    if measured and not compared:
        first = measured[0]
        value = (first.value or 0.0) / _MILLION
        sentence = f"{place}{row_title(panel, first)}: {value:.3f} {unit} a run of {first.benchmark}."
        yield Finding(Rank.OTHER, sentence)


def _published_findings(panel: Panel, cell: CellRecord, name: str, share: float) -> Iterator[Finding]:
    table = published_table(panel.cells)
    row = published_row(table, cell)
    if table is None or row is None:
        return
    difference = table.difference(row)
    if difference is not None and table.baseline.real:
        documented = f"{100 * difference / table.baseline.real:+.3f} %"
    elif row.overhead is not None:
        documented = f"{row.bound} {row.overhead:g} %".strip()
    else:
        return
    yield Finding(Rank.PUBLISHED, f"{name}: {share:+.3f} %; published: {documented}.", abs(share) / 100)


# The instructions that were the instrumentation's own, beside a whole system's total and its A/A difference.

HEADINGS = ("own", "own, %")
_OWN = "instrumentation"
_TRAPS = ("int3",)


def is_counted(panel: Panel) -> bool:
    """Whether a cell's profile has counted it."""
    return any(parameter(cell, _OWN) is not None for cell in panel.cells)


def figures(cell: CellRecord) -> Sequence[str]:
    """Its instructions of the middle run, and their share of the run."""
    own = parameter(cell, _OWN)
    if own is None:
        return (NOTHING, NOTHING)
    return number(own), f"{100 * own / cell.value:.4f}" if own and cell.value else ""


def sentences(panel: Panel) -> Iterator[str]:
    """What it is, and how it compares with what a difference has to exceed."""
    if not is_counted(panel):
        return
    yield (
        "Own: the instrumentation's own instructions of a run, executed in the kernel's markers, in the module beside "
        "the work, in code made for its probes, and at probe points. QEMU counted each one."
    )
    for cell in panel.cells:
        own, smallest = parameter(cell, _OWN), parameter(cell, "resolvable")
        if not own:
            continue
        least, most = (number(parameter(cell, f"{_OWN}_{end}") or own) for end in ("least", "most"))
        bound = percent(cell, smallest)
        against = "" if bound is None else f", where a difference of totals has to exceed {bound:.4f} %"
        share = 100 * own / cell.value if cell.value else 0
        yield f"Own of {row_title(panel, cell)}: {least} to {most} in the runs, {share:.4f} %{against}."
    if any(cell.work is not None and cell.work.mechanism in _TRAPS for cell in panel.cells):
        yield f"What the kernel itself executes for a breakpoint is not in it: {PROGRAM} profile has that by symbol."


# A whole-system workload with and without instrumentation: the cost of a run, and what the difference means.

_MILLION = 1e6
_PER_SECOND = 1e9
"""Units in a second, on both clocks: the exact clock counts a thousand million instructions a second."""
_DIGEST = 16
_FEWEST_TICKS = 30
"""Ticks in a run below which user and sys, which are sampled at ticks, are not printed."""
_ROUND_TRIP = {"rtt_min_ns": "us min", "rtt_avg_ns": "us avg", "rtt_max_ns": "us max"}
"""Columns of the round-trip time by their parameters, which are in ns; ping rounds to microseconds."""


def system_sheet(panel: Panel) -> Sheet:
    """Return the cells of one workload on one machine, whatever their kernels and probes."""
    first, table = panel.first, published_table(panel.cells)
    footnotes = Footnotes(panel.cells, lambda cell: row_title(panel, cell), lambda cell: _remark(panel, cell))
    unit = "million instructions" if first.clock == "instructions" else "milliseconds"
    return Sheet(
        title=table.title if table else _title(first),
        facts=[
            cpu(first.cpu).title,
            f"{f'{first.table}: ' if first.table else ''}{first.cpu}, {processors(first)}, {_asked(first)}, "
            f"{_runs(panel)} after a cold one, in {unit}",
        ],
        grid=Grid(_headings(panel), [block for block in _blocks(panel, table, footnotes) if block]),
        sentences=[
            *_resolution(panel, unit),
            *sentences(panel),
            *_ring(panel),
            *_published_sentences(table),
            *_clock(panel),
        ],
        footnotes=footnotes.all(),
        proofs=_proofs(panel),
    )


def _title(cell: CellRecord) -> str:
    known = system_workload(cell.benchmark)
    return known.title if known else cell.benchmark


def _asked(cell: CellRecord) -> str:
    texts = {"scope": "scope {}", "packets": "{} packets", "command": "{}", "image": "image {}"}
    return ", ".join(
        [
            cell.benchmark,
            *(text.format(cell.parameters[name]) for name, text in texts.items() if name in cell.parameters),
        ]
    )


def _is_flood(panel: Panel) -> bool:
    return panel.first.benchmark == "ping-flood"


def _records(panel: Panel) -> bool:
    return any(proof is not None and proof.recorded is not None for proof in (cell.work for cell in panel.cells))


def _headings(panel: Panel) -> list[str]:
    return [
        *("real", "user", "sys", "difference", "+-", "%"),
        *(HEADINGS if is_counted(panel) else ()),
        *("cold, real", "cold, %"),
        *(("packets a second", *_ROUND_TRIP.values()) if _is_flood(panel) else ()),
        *(("events a run", "lost", "an event") if _records(panel) else ()),
        *(("published",) if _overheads(published_table(panel.cells)) else ()),
    ]


def _blocks(panel: Panel, table: PublishedSystem | None, footnotes: Footnotes) -> Iterator[list[Row]]:
    yield [Row(row_title(panel, cell), [*_figures(panel, cell, table, footnotes)]) for cell in panel.cells]
    if table is not None and not _overheads(table):
        yield [_published_row(panel, name, row, table) for name, row in table.rows.items()]


def _figures(panel: Panel, cell: CellRecord, table: PublishedSystem | None, footnotes: Footnotes) -> Iterator[str]:
    if cell.value is None:
        yield f"{cell.status}{footnotes.marks(cell)}"
        yield from [""] * (len(_headings(panel)) - 1)
        return
    yield _millions(cell.value) + footnotes.marks(cell)
    for name in ("user", "system"):
        yield _whole_millions(parameter(cell, name)) if _ticks(cell) >= _FEWEST_TICKS else NOTHING
    yield _signed(None if cell.overhead is None else cell.overhead / _MILLION, 3)
    smallest = parameter(cell, "resolvable")
    yield "" if smallest is None or cell.overhead == 0 else _millions(smallest)
    yield _signed(percent(cell, cell.overhead), 3)
    if is_counted(panel):
        yield from figures(cell)
    yield _millions(parameter(cell, "cold"))
    yield _signed(cold_percent(panel, cell), 3)
    if _is_flood(panel):
        packets = parameter(cell, "packets")
        yield NOTHING if packets is None else f"{packets / cell.value * _PER_SECOND:.0f}"
        yield from (_microseconds(parameter(cell, name)) for name in _ROUND_TRIP)
    if _records(panel):
        yield from _events(panel, cell)
    if _overheads(table):
        row = published_row(table, cell)
        yield "" if row is None else _bound(row)


def _events(panel: Panel, cell: CellRecord) -> Iterator[str]:
    proof = cell.work
    if proof is None or proof.recorded is None:
        yield from ("", "", "")
        return
    each, events = per_event(panel, cell), parameter(cell, EVENTS)
    yield NOTHING if events is None else f"{events:.0f}"
    yield str(proof.lost)
    yield NOTHING if each is None else f"{each:.0f}"


def _published_row(panel: Panel, name: str, row: PublishedWork, table: PublishedSystem) -> Row:
    base, difference = table.baseline, table.difference(row)
    share = None if difference is None or not base.real else 100 * difference / base.real
    cells = [
        _seconds(row.real),
        _seconds(row.user),
        _seconds(row.system),
        _signed(difference, 3),
        "",
        _signed(share, 3),
    ]
    cells += ["", *(("", "") if is_counted(panel) else ()), ""]
    if _is_flood(panel):
        cells.append(NOTHING if row.packets_per_second is None else f"{row.packets_per_second:.0f}")
    cells += [""] * (len(_headings(panel)) - len(cells))
    return Row(f"published, {name} ({table.unit})", cells)


def _overheads(table: PublishedSystem | None) -> bool:
    return table is not None and table.unit == "percent"


def _bound(row: PublishedWork) -> str:
    estimated = " (estimated)" if row.estimated else ""
    return f"{row.bound} {published_figure(row.overhead)} %{estimated}".strip()


def _resolution(panel: Panel, unit: str) -> Iterator[str]:
    aa_boots = [cell for cell in panel.cells if cell.parameters.get("again") and cell.overhead is not None]
    for cell in aa_boots:
        yield (
            "A/A: the baseline booted again, with other random numbers and begun at another phase of the timer's tick, "
            f"differs by {abs(cell.overhead or 0) / _MILLION:.3f} {unit} "
            f"({abs(percent(cell, cell.overhead) or 0):.4f} %)."
        )
    if aa_boots:
        yield (
            "+-: what a difference has to exceed to count: the largest between a run of the baseline and the same run "
            "of its repetition, or by which a run of the row itself is off."
        )


def _published_sentences(table: PublishedSystem | None) -> Iterator[str]:
    if table is not None:
        alike = "" if table.baseline.packets is None else " Their difference is for as many packets."
        yield f"Published: {table.document}; {table.conditions}.{alike}"


def _clock(panel: Panel) -> list[str]:
    if panel.first.clock != "instructions":
        return [unit_meaning(panel)]
    return [
        "Instructions are a count, not time. The whole system is in memory, and no disk is read: a cold run "
        "decompresses what a warm one finds in the cache.",
        *_sampling(panel.first),
    ]


def _sampling(cell: CellRecord) -> Iterator[str]:
    """The error of user and sys: each tick is counted in one or the other."""
    ticks = _ticks(cell)
    if ticks >= _FEWEST_TICKS:
        yield (
            f"User and sys are sampled, by what ran at each of a run's {ticks:.0f} ticks: they may be off by some "
            f"{50 / math.sqrt(ticks):.1f} % of real."
        )


def _ticks(cell: CellRecord) -> float:
    """Ticks of the kernel's clock in a run."""
    return (cell.value or 0) / _PER_SECOND * (parameter(cell, "ticks_per_second") or 0)


def _ring(panel: Panel) -> Iterator[str]:
    slots = next((value for cell in panel.cells if (value := parameter(cell, "ring_slots"))), None)
    if slots is not None:
        yield (
            f"Events go into a ring of {slots:.0f} for each CPU, over the oldest ones: it is a flight recorder. "
            "Lost are those that were never recorded, in any run."
        )


def _runs(panel: Panel) -> str:
    count = max(len(cell.samples) for cell in panel.cells)
    return "no run" if not count else "1 warm run" if count == 1 else f"{count} warm runs"


def _remark(panel: Panel, cell: CellRecord) -> str | None:
    """For a probe or a module on another kernel: its own share of the difference, without that kernel's."""
    own = own_overhead(panel, cell)
    if cell.kernel == panel.kernel or cell.probe == BASELINE or own is None or cell.value is None:
        return None
    share = 100 * own / (cell.value - own)
    return f"compared with {cell.kernel} by itself: {own / _MILLION:+.3f} ({share:+.3f} %)"


def _proofs(panel: Panel) -> Sequence[ProofList]:
    proofs = [
        Proof(row_title(panel, cell), proof.mechanism, "", _facts(cell)) for cell in panel.cells if (proof := cell.work)
    ]
    return [ProofList("Evidence", proofs)] if proofs else []


def _facts(cell: CellRecord) -> list[str]:
    proof = cell.work
    assert proof is not None
    what = {"kernel-build": f"{proof.done} objects in each", "ping-flood": f"{proof.done} packets answered in each"}
    facts = [f"{proof.runs} runs, {what.get(cell.benchmark, 'all of which ended well')}"]
    if proof.digest:
        facts.append(f"SHA-256 {proof.digest[:_DIGEST]}...")
    if proof.places:
        facts += [f"{proof.places} places armed", f"{proof.recorded} events recorded", f"{proof.lost} lost"]
        facts += [f"{proof.overwritten} overwritten"] if proof.overwritten else []
        facts.append("bytes restored")
    facts.append(f"clocksource {proof.clocksource}")
    return facts


def _millions(value: float | None) -> str:
    return NOTHING if value is None else f"{value / _MILLION:.3f}"


def _microseconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value / 1000:.0f}"


def _whole_millions(value: float | None) -> str:
    return NOTHING if value is None else f"{value / _MILLION:.0f}"


def _seconds(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def _signed(value: float | None, digits: int) -> str:
    if value is None:
        return NOTHING
    text = f"{value:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text


# A whole-system workload as a bar chart: what instrumentation adds to it, beside what was published.

_LABEL_WIDTH = 14
_DIGITS = 3


def system_chart(panel: Panel) -> BarChart | None:
    """Return the differences in per cent of the baseline, with the smallest resolvable one; None without a bar."""
    cells = [cell for cell in panel.cells if not is_baseline(panel, cell)]
    if not cells:
        return None
    first, table = panel.first, published_table(panel.cells)
    panes = [("added to a run, per cent", [Series("", [_bar(cell) for cell in cells])])]
    if table is not None and table.unit == "percent":
        rows = [published_row(table, cell) for cell in cells]
        published = [Bar(None, "") if row is None else Bar(row.overhead, f"{row.bound} {row.overhead}") for row in rows]
        panes.append(("published, per cent", [Series("published", published)]))
    return BarChart(
        title=table.title if table else first.benchmark,
        subtitle=f"{first.benchmark} on {first.cpu}, {processors(first)}, {panel.kernel}, in {first.unit}",
        labels=["\n".join(textwrap.wrap(row_title(panel, cell), _LABEL_WIDTH)) for cell in cells],
        panes=panes,
    )


def _bar(cell: CellRecord) -> Bar:
    value = percent(cell, cell.overhead)
    if value is None:
        return Bar(None, cell.status if cell.status != "ok" else "no baseline")
    text = f"{value:+.{_DIGITS}f}"
    smallest = percent(cell, parameter(cell, "resolvable"))
    bounds = None if smallest is None else (value - smallest, value + smallest)
    return Bar(value, f"{text}\nno verdict" if cell.verdict == "none" else text, bounds)


_APART = ("image", "channel", "scope", "packets", "command", "memory_mib")


class SystemReport:
    """A table for each workload and machine."""

    def owns(self, benchmark: str) -> bool:
        """Whether it is a whole-system workload."""
        return system_workload(benchmark) is not None

    def apart(self, cell: CellRecord) -> tuple[object, ...]:
        """Return the workload's amount and where it ran; probes that record stand beside those that do not."""
        return parameters(cell, _APART)

    def panels(self, cells: Sequence[CellRecord]) -> list[Panel]:
        """Return one panel: kernels are compared with each other."""
        return [Panel(cells, cells[0].kernel)]

    def joins(self, panel: Panel, group: Group) -> bool:
        """Never."""
        del panel, group
        return False

    def sheet(self, group: Group) -> Sheet:
        """Return the group's only panel as a table."""
        (panel,) = group
        return system_sheet(panel)

    def findings(self, group: Group) -> Iterable[Finding]:
        """Return what costs most beside what was published, and what is not decided."""
        (panel,) = group
        return system_findings(panel)

    def charts(self, group: Group) -> Mapping[str, Chart]:
        """Return the chart of what instrumentation adds; none of a baseline alone."""
        (panel,) = group
        chart = system_chart(panel)
        return {} if chart is None else {file_name(group): chart}


REPORT = SystemReport()
