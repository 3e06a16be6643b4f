# SPDX-License-Identifier: GPL-2.0-only
"""The report of whole-system workloads: a row for each kernel and probe, compared with one baseline."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.benchmarks.system import system_parameters
from orchestrator.benchmarks.system.system_parameters import MEMORY_MIB
from orchestrator.benchmarks.system.workloads import PublishedSystem, PublishedWork, published_systems, system_workloads
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.plain_text import listed
from orchestrator.program import PROGRAM
from orchestrator.report.chart import Bar, BarChart, Chart, Series
from orchestrator.report.columns import Column, Columns, cell_columns
from orchestrator.report.figures import NOTHING, number, published_figure
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.highlights import Highlight, Rank
from orchestrator.report.proofs import CellProof, ProofList
from orchestrator.report.sheet import Sheet
from orchestrator.report.table_report import CellGroup, TableReport, file_name, processors, unit_meaning, values_of
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import CHANNEL, COMMAND, IMAGE, PACKETS, SCOPE

_MILLION = 1e6
_PER_SECOND = 1e9
"""Units in a second, on both clocks: the exact clock counts a thousand million instructions a second."""
_FEWEST_TICKS = 30
"""Fewest ticks in a run for which user and sys, which are sampled at ticks, are printed."""
_ROUND_TRIP = {
    system_parameters.RTT_MIN: "us min",
    system_parameters.RTT_AVG: "us avg",
    system_parameters.RTT_MAX: "us max",
}
"""Columns of the round-trip time by their parameters, which are in ns; ping rounds to microseconds."""


@dataclass(frozen=True)
class _Column(Column[CellRecord]):
    """A column of cells, with what the published table has in it."""

    published: Callable[[PublishedWork], str] = lambda _: ""


@dataclass(frozen=True)
class _Table:
    group: CellGroup

    @property
    def published(self) -> PublishedSystem | None:
        named = next((cell.reference.table for cell in self.group.cells if cell.reference), None)
        return published_systems().get(named) if named else None

    @property
    def overheads(self) -> PublishedSystem | None:
        """The published table, if it has overheads in per cent: those are printed in a column."""
        return self.published if self.published is not None and self.published.unit == "percent" else None

    def published_row(self, cell: CellRecord) -> PublishedWork | None:
        """None for an A/A boot."""
        table = self.published
        return None if table is None or _is_aa_boot(cell) else table.row(cell.kernel, cell.probe)

    @property
    def is_counted(self) -> bool:
        return any(system_parameters.INSTRUMENTATION.of(cell) is not None for cell in self.group.cells)

    @property
    def unit(self) -> str:
        return "million instructions" if self.group.first.clock == "instructions" else "milliseconds"

    def title(self, cell: CellRecord) -> str:
        aa_boot = system_parameters.AGAIN.of(cell)
        if aa_boot:
            return "A/A boot" if aa_boot == 1 else f"A/A boot {aa_boot}"
        if cell.probe == BASELINE:
            return cell.kernel
        return cell.probe if cell.kernel == self.group.kernel else f"{cell.probe}, {cell.kernel}"

    def is_baseline(self, cell: CellRecord) -> bool:
        return cell.kernel == self.group.kernel and cell.probe == BASELINE and not _is_aa_boot(cell)

    def own_overhead(self, cell: CellRecord) -> float | None:
        """The difference to the baseline on the cell's own kernel; None where that was not measured."""
        of_kernel = [
            candidate
            for candidate in self.group.cells
            if candidate.kernel == cell.kernel and not _is_aa_boot(candidate)
        ]
        own_cell = next((candidate for candidate in of_kernel if candidate.probe == BASELINE), None)
        return None if own_cell is None or own_cell.value is None or cell.value is None else cell.value - own_cell.value

    def remark(self, cell: CellRecord) -> str | None:
        """For a probe or a module on another kernel: its share of the difference, without that kernel's own."""
        overhead = self.own_overhead(cell)
        if cell.kernel == self.group.kernel or cell.probe == BASELINE or overhead is None or cell.value is None:
            return None
        share = 100 * overhead / (cell.value - overhead)
        return f"compared with {cell.kernel} by itself: {overhead / _MILLION:+.3f} ({share:+.3f} %)"

    def sheet(self) -> Sheet:
        first, group, table = self.group.first, self.group, self.published
        footnotes = Footnotes(group.cells, self.title, self.remark)
        unit = "" if table is None else table.unit
        columns, known = list(self._columns()), system_workloads().benchmarks.get(first.benchmark)
        texts = {SCOPE: "scope {}", PACKETS: "{} packets", COMMAND: "{}", IMAGE: "image {}"}
        asked = [text.format(first.parameters[name]) for name, text in texts.items() if name in first.parameters]
        count = max(len(cell.samples) for cell in group.cells)
        runs = "no run" if not count else "1 warm run" if count == 1 else f"{count} warm runs"
        measured = cell_columns(columns, footnotes)
        published = Columns(Column(column.heading, column.published) for column in columns)
        documented = {} if table is None or self.overheads else table.rows
        proofs = [
            CellProof(self.title(cell), cell.work.mechanism, "", _facts(cell)) for cell in group.cells if cell.work
        ]
        return Sheet(
            title=table.title if table else known.title if known else first.benchmark,
            facts=[
                cpu(first.cpu).title,
                f"{f'{first.table}: ' if first.table else ''}{first.cpu}, {processors(first)}, "
                f"{', '.join([first.benchmark, *asked])}, {runs} after a cold one, in {self.unit}",
            ],
            grid=measured.grid(
                (measured.row(self.title(cell), cell) for cell in group.cells),
                (published.row(f"published, {name} ({unit})", row) for name, row in documented.items()),
            ),
            sentences=[*self._resolution(), *self._instrumentation(), *self._sentences()],
            footnotes=footnotes.all(),
            proofs=[ProofList("Evidence", proofs)] if proofs else [],
        )

    def _columns(self) -> Iterator[_Column]:
        table, base = self.published, self.group.first

        def difference(row: PublishedWork) -> float | None:
            return None if table is None else table.difference(row)

        def resolvable(cell: CellRecord) -> str:
            smallest = parameters.RESOLVABLE.of(cell)
            return "" if smallest is None or cell.overhead == 0 else _millions(smallest)

        def share(row: PublishedWork) -> str:
            more, whole = difference(row), table.baseline.real if table else None
            return _signed(100 * more / whole if more is not None and whole else None)

        def sampled(fact: parameters.NumberParameter) -> Callable[[CellRecord], str]:
            return lambda cell: _millions(fact.of(cell), 0) if _ticks(cell) >= _FEWEST_TICKS else NOTHING

        def colder(cell: CellRecord) -> str:
            cold, usual = system_parameters.COLD.of(cell), system_parameters.COLD.of(base)
            return _signed(None if cold is None or not usual else 100 * (cold - usual) / usual)

        yield _Column("real", lambda cell: _millions(cell.value), published=lambda row: _fixed(row.real))
        yield _Column("user", sampled(system_parameters.USER), published=lambda row: _fixed(row.user))
        yield _Column("sys", sampled(system_parameters.SYSTEM), published=lambda row: _fixed(row.system))
        yield _Column(
            "difference",
            lambda cell: _signed(None if cell.overhead is None else cell.overhead / _MILLION),
            published=lambda row: _signed(difference(row)),
        )
        yield _Column("+-", resolvable)
        yield _Column("%", lambda cell: _signed(_percent(cell, cell.overhead)), published=share)
        if self.is_counted:
            instrumentation = system_parameters.INSTRUMENTATION.of
            yield _Column(
                "own", lambda cell: NOTHING if (executed := instrumentation(cell)) is None else number(executed)
            )
            yield _Column("own, %", _own_share)
        yield _Column("cold, real", lambda cell: _millions(system_parameters.COLD.of(cell)))
        yield _Column("cold, %", colder)
        if base.benchmark == "ping-flood":
            yield _Column("packets a second", _packets, published=lambda row: _fixed(row.packets_per_second, 0))
            yield from (_Column(heading, _microseconds(fact)) for fact, heading in _ROUND_TRIP.items())
        if any(cell.work is not None and cell.work.recorded is not None for cell in self.group.cells):
            yield _Column("events a run", _recorded(lambda cell: _fixed(system_parameters.EVENTS_A_RUN.of(cell), 0)))
            yield _Column("lost", _recorded(lambda cell: str(cell.work.lost if cell.work else "")))
            yield _Column("an event", _recorded(self._an_event))
        if self.overheads:
            yield _Column("published", self._bound)

    def _an_event(self, cell: CellRecord) -> str:
        events, overhead = system_parameters.EVENTS_A_RUN.of(cell), self.own_overhead(cell)
        return f"{overhead / events:.0f}" if events and overhead is not None and cell.verdict != "none" else NOTHING

    def _bound(self, cell: CellRecord) -> str:
        row = self.published_row(cell)
        if row is None:
            return ""
        estimated = " (estimated)" if row.estimated else ""
        return f"{row.bound} {published_figure(row.overhead)} %{estimated}".strip()

    def _resolution(self) -> Iterator[str]:
        aa_boots = [cell for cell in self.group.cells if _is_aa_boot(cell) and cell.overhead is not None]
        for cell in aa_boots:
            yield (
                "A/A: the baseline booted again, with other random numbers and begun at another phase of the timer's "
                f"tick, differs by {abs(cell.overhead or 0) / _MILLION:.3f} {self.unit} "
                f"({abs(_percent(cell, cell.overhead) or 0):.4f} %)."
            )
        if aa_boots:
            yield (
                "+-: the limit that a difference has to exceed to count: the largest difference between a run of the "
                "baseline and the same run of its repetition, or between one run's difference and the row's."
            )

    def _instrumentation(self) -> Iterator[str]:
        if not self.is_counted:
            return
        yield (
            "Own: the instrumentation's own instructions of a run, executed in the kernel's markers, in the module "
            "beside the work, in code made for its probes, and at probe points. QEMU counted each one."
        )
        for cell in self.group.cells:
            executed = system_parameters.INSTRUMENTATION.of(cell)
            if executed:
                least, most = (
                    number(end.of(cell) or executed)
                    for end in (system_parameters.INSTRUMENTATION_LEAST, system_parameters.INSTRUMENTATION_MOST)
                )
                bound = _percent(cell, parameters.RESOLVABLE.of(cell))
                against = "" if bound is None else f", where a difference of totals has to exceed {bound:.4f} %"
                share = 100 * executed / cell.value if cell.value else 0
                yield f"Own of {self.title(cell)}: {least} to {most} in the runs, {share:.4f} %{against}."
        if any(cell.work is not None and cell.work.mechanism == "int3" for cell in self.group.cells):
            own_profile = f"{PROGRAM} profile has that by symbol"
            yield f"What the kernel itself executes for a breakpoint is not in it: {own_profile}."

    def _sentences(self) -> Iterator[str]:
        first, table = self.group.first, self.published
        slots = next((value for cell in self.group.cells if (value := system_parameters.RING_SLOTS.of(cell))), None)
        if slots is not None:
            yield (
                f"Events go into a ring of {slots:.0f} for each CPU, over the oldest ones: it is a flight recorder. "
                "Lost are those that were never recorded, in any run."
            )
        if table is not None:
            alike = "" if table.baseline.packets is None else " Their difference is for equally many packets."
            yield f"Published: {table.document}; {table.conditions}.{alike}"
        if first.clock != "instructions":
            yield unit_meaning(self.group)
            return
        yield (
            "Instructions are a count, not time. The whole system is in memory, and no disk is read: a cold run "
            "decompresses what a warm one finds in the cache."
        )
        ticks = _ticks(first)
        if ticks >= _FEWEST_TICKS:
            yield (
                f"User and sys are sampled, by what ran at each of a run's {ticks:.0f} ticks: they may be off by some "
                f"{50 / math.sqrt(ticks):.1f} % of real."
            )

    def findings(self) -> Iterator[Highlight]:
        name = self.group.first.table
        place, of_table = (f"{name}: ", f", {name}") if name else ("", "")
        unit = self.unit if self.group.first.clock == "instructions" else "ms"
        measured = [cell for cell in self.group.cells if cell.value is not None]
        other_cells = [cell for cell in measured if not self.is_baseline(cell) and not _is_aa_boot(cell)]
        compared = [cell for cell in other_cells if cell.overhead is not None]
        decided = [cell for cell in compared if cell.verdict is None]
        if decided:
            largest = max(decided, key=lambda cell: cell.overhead or 0.0)
            share = _percent(largest, largest.overhead) or 0.0
            more = f"{(largest.overhead or 0.0) / _MILLION:+.3f} {unit} a run of {largest.benchmark}, {share:+.3f} %"
            most = "Largest overhead" if len(compared) > 1 else "Overhead"
            yield Highlight(Rank.LARGEST, f"{most}{of_table}: {self.title(largest)}, {more}.", share / 100)
            documented = self._documented(largest)
            if documented is not None:
                sentence = f"{place}{self.title(largest)}: {share:+.3f} %; published: {documented}."
                yield Highlight(Rank.PUBLISHED, sentence, abs(share) / 100)
        hidden = [cell for cell in compared if cell.verdict is not None]
        if hidden:
            names = listed([self.title(cell) for cell in hidden])
            sentence = (
                f"Not decided{of_table}: {names}; the difference is no larger than between boots of equal systems."
            )
            yield Highlight(Rank.UNDECIDED, sentence, len(hidden) / len(compared))
        if measured and not compared:
            first = measured[0]
            value = (first.value or 0.0) / _MILLION
            yield Highlight(Rank.OTHER, f"{place}{self.title(first)}: {value:.3f} {unit} a run of {first.benchmark}.")

    def _documented(self, cell: CellRecord) -> str | None:
        table, row = self.published, self.published_row(cell)
        if table is None or row is None:
            return None
        difference = table.difference(row)
        if difference is not None and table.baseline.real:
            return f"{100 * difference / table.baseline.real:+.3f} %"
        return None if row.overhead is None else f"{row.bound} {row.overhead:g} %".strip()

    def chart(self) -> BarChart | None:
        cells = [cell for cell in self.group.cells if not self.is_baseline(cell)]
        if not cells:
            return None
        first, table = self.group.first, self.published
        panes = [("added to a run, per cent", [Series("", [_bar(cell) for cell in cells])])]
        if self.overheads:
            rows = [self.published_row(cell) for cell in cells]
            bars = [Bar(None, "") if row is None else Bar(row.overhead, f"{row.bound} {row.overhead}") for row in rows]
            panes.append(("published, per cent", [Series("published", bars)]))
        return BarChart(
            title=table.title if table else first.benchmark,
            subtitle=f"{first.benchmark} on {first.cpu}, {processors(first)}, {self.group.kernel}, in {first.unit}",
            labels=["\n".join(textwrap.wrap(self.title(cell), 14)) for cell in cells],
            panes=panes,
        )


def _bar(cell: CellRecord) -> Bar:
    value = _percent(cell, cell.overhead)
    if value is None:
        return Bar(None, cell.status if cell.status != "ok" else "no baseline")
    text = f"{value:+.3f}"
    smallest = _percent(cell, parameters.RESOLVABLE.of(cell))
    bounds = None if smallest is None else (value - smallest, value + smallest)
    return Bar(value, f"{text}\nno verdict" if cell.verdict == "none" else text, bounds)


def _facts(cell: CellRecord) -> list[str]:
    proof = cell.work
    assert proof is not None
    what = {"kernel-build": f"{proof.done} objects in each", "ping-flood": f"{proof.done} packets answered in each"}
    facts = [f"{proof.runs} runs, {what.get(cell.benchmark, 'all of which ended well')}"]
    if proof.digest:
        facts.append(f"SHA-256 {proof.digest[:16]}...")
    if proof.places:
        facts += [f"{proof.places} places armed", f"{proof.recorded} events recorded", f"{proof.lost} lost"]
        facts += [f"{proof.overwritten} overwritten"] if proof.overwritten else []
        facts.append("bytes restored")
    return [*facts, f"clocksource {proof.clocksource}"]


def _is_aa_boot(cell: CellRecord) -> bool:
    return bool(system_parameters.AGAIN.of(cell))


def _percent(cell: CellRecord, value: float | None) -> float | None:
    if value is None or cell.value is None or cell.overhead is None:
        return None
    base = cell.value - cell.overhead
    return 100 * value / base if base > 0 else None


def _ticks(cell: CellRecord) -> float:
    return (cell.value or 0) / _PER_SECOND * (system_parameters.TICKS_PER_SECOND.of(cell) or 0)


def _own_share(cell: CellRecord) -> str:
    executed = system_parameters.INSTRUMENTATION.of(cell)
    if executed is None:
        return NOTHING
    return f"{100 * executed / cell.value:.4f}" if executed and cell.value else ""


def _packets(cell: CellRecord) -> str:
    packets = PACKETS.of(cell)
    return NOTHING if packets is None or not cell.value else f"{packets / cell.value * _PER_SECOND:.0f}"


def _microseconds(fact: parameters.NumberParameter) -> Callable[[CellRecord], str]:
    return lambda cell: _fixed(fact.of(cell), 0, 1000)


def _recorded(text: Callable[[CellRecord], str]) -> Callable[[CellRecord], str]:
    return lambda cell: text(cell) if cell.work is not None and cell.work.recorded is not None else ""


def _fixed(value: float | None, digits: int = 3, part: float = 1) -> str:
    return NOTHING if value is None else f"{value / part:.{digits}f}"


def _millions(value: float | None, digits: int = 3) -> str:
    return _fixed(value, digits, _MILLION)


def _signed(value: float | None) -> str:
    if value is None:
        return NOTHING
    text = f"{value:+.3f}"
    return text.lstrip("+-") if float(text) == 0 else text


class SystemReport(TableReport):
    """A table for each workload and machine; kernels are compared with each other."""

    KEY_PARAMETERS = (IMAGE, CHANNEL, SCOPE, PACKETS, COMMAND, MEMORY_MIB)

    def handles(self, benchmark: str) -> bool:
        return benchmark in system_workloads().benchmarks

    def table_key(self, cell: CellRecord) -> tuple[object, ...]:
        return values_of(cell, self.KEY_PARAMETERS)

    def groups(self, cells: Sequence[CellRecord]) -> list[CellGroup]:
        return [CellGroup(cells, cells[0].kernel)]

    def sheet(self, groups: Sequence[CellGroup]) -> Sheet:
        return _Table(*groups).sheet()

    def findings(self, groups: Sequence[CellGroup]) -> Iterable[Highlight]:
        return _Table(*groups).findings()

    def charts(self, groups: Sequence[CellGroup]) -> Mapping[str, Chart]:
        chart = _Table(*groups).chart()
        return {} if chart is None else {file_name(groups): chart}


REPORT = SystemReport()
