# SPDX-License-Identifier: GPL-2.0-only
"""A whole-system workload with and without instrumentation: the cost of a run, and what the difference means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orchestrator.benchmarks.system.published import PublishedSystem, PublishedWork
from orchestrator.benchmarks.system.report import instrumentation
from orchestrator.benchmarks.system.report.comparison import (
    EVENTS,
    cold_percent,
    own_overhead,
    parameter,
    per_event,
    percent,
    published_row,
    published_table,
    row_title,
)
from orchestrator.benchmarks.system.workloads import system_workload
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import BASELINE
from orchestrator.report.evidence import Proof, ProofList
from orchestrator.report.figures import NOTHING, published_figure
from orchestrator.report.footnotes import Footnotes
from orchestrator.report.grid import Grid, Row
from orchestrator.report.panel import Panel
from orchestrator.report.sheet import Sheet
from orchestrator.report.wording import processors, unit_meaning
from orchestrator.results.contract import CellRecord

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
            *instrumentation.sentences(panel),
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
        *(instrumentation.HEADINGS if instrumentation.is_counted(panel) else ()),
        *("cold, real", "cold, %"),
        *(("packets a second", *_ROUND_TRIP.values()) if _is_flood(panel) else ()),
        *(("events a run", "lost", "an event") if _records(panel) else ()),
        *(("published",) if _overheads(published_table(panel.cells)) else ()),
    ]


def _blocks(panel: Panel, table: PublishedSystem | None, footnotes: Footnotes) -> Iterator[list[Row]]:
    yield [Row(row_title(panel, cell), [*_figures(panel, cell, table, footnotes)]) for cell in panel.cells]
    if table is not None and not _overheads(table):
        yield [_published(panel, name, row, table) for name, row in table.rows.items()]


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
    if instrumentation.is_counted(panel):
        yield from instrumentation.figures(cell)
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


def _published(panel: Panel, name: str, row: PublishedWork, table: PublishedSystem) -> Row:
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
    cells += ["", *(("", "") if instrumentation.is_counted(panel) else ()), ""]
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
