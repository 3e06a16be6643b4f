# SPDX-License-Identifier: GPL-2.0-only
"""One cell in a running guest: armed, proved, timed, counted, taken out, proved again."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pydantic import ValidationError

from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks import gtodbench
from orchestrator.benchmarks.gtodbench import Measurement
from orchestrator.catalog.probes import BASELINE, ProbeKind, probes
from orchestrator.catalog.reference import reference_table
from orchestrator.errors import BuildError, EvidenceError, GuestHang
from orchestrator.experiment.bench import CLOCKSOURCE, Bench, read_clocksource
from orchestrator.experiment.plan import Cell
from orchestrator.experiment.supplies import Target
from orchestrator.guest.interrupts import INT3
from orchestrator.probes.attachment import Attachment, attached
from orchestrator.probes.evidence import Observation, check_same, check_taint, check_traps, check_untouched, observe
from orchestrator.probes.point import ProbePoint, find_point
from orchestrator.results.contract import CellRecord, Evidence, ReferenceValue, Status
from orchestrator.results.statistics import mean

COUNTED_CALLS = 1000
"""Calls of the counting pass; every one must be a hit."""


@dataclass(frozen=True)
class _Proof:
    """What was seen at the probe point while it counted and was timed."""

    seen: Observation
    hits: int
    int3: int
    detour: str | None


def measure_cell(bench: Bench, cell: Cell, baseline: float | None) -> CellRecord:
    """Measure a cell and prove it. ``baseline`` is the cost without a probe, if it is known already.

    Raises EvidenceError when a proof fails, BuildError when the cell's module did not build, GuestError when the guest
    is in trouble; NoSuchEntryError when CPU or kernel have not the entry asked for.
    """
    target = bench.supplies.targets[cell.id]
    if isinstance(target, str):
        return without_number(cell, "unsupported", target)
    if isinstance(target.module, BuildError):
        raise target.module
    mark = bench.guest.console.length()
    deadline = time.monotonic() + cell.time_limit
    point = find_point(bench.guest, bench.symbols, target.symbol, target.offset)
    kind = probes()[cell.probe]
    if target.module is None:
        measured = _timed(bench, cell, deadline)
        proof = _Proof(observe(bench.guest, point), 0, 0, None)
        check_untouched(point, proof.seen, "after the timed calls")
    else:
        measured, proof = _with_probe(bench, cell, kind, target.module, point, deadline)
    bench.guest.check_console(mark)
    return _record(bench, cell, target, point, measured, proof, baseline)


def _with_probe(
    bench: Bench, cell: Cell, kind: ProbeKind, module: Module, point: ProbePoint, deadline: float
) -> tuple[Measurement, _Proof]:
    with attached(bench.guest, kind, module, point) as attachment:
        armed = attachment.wait_until_armed()
        detour = attachment.detour(armed)
        try:
            measured = _timed(bench, cell, deadline)
        except EvidenceError:
            # Samples differ when the probe does, and then that is the news.
            check_same(armed, observe(bench.guest, point), point, "while the calls were timed")
            raise
        check_same(armed, observe(bench.guest, point), point, "while the calls were timed")
        hits, traps = _counted(bench, cell, attachment, deadline)
        check_same(armed, observe(bench.guest, point), point, "while the hits were counted")
        check_traps(kind, hits, traps)
    return measured, _Proof(armed, hits, traps, detour)


def _timed(bench: Bench, cell: Cell, deadline: float) -> Measurement:
    measured = gtodbench.measure(
        bench.guest,
        entry=cell.entry,
        calls=cell.calls,
        repeats=cell.repeats,
        ticks_per_second=int(bench.supplies.kernel.config["CONFIG_HZ"]),
        time_limit=_left(cell, deadline),
    )
    clocksource = read_clocksource(bench.guest)
    if clocksource != CLOCKSOURCE:
        raise EvidenceError(f"the guest's clocksource changed from {CLOCKSOURCE} to {clocksource}")
    return measured


def _counted(bench: Bench, cell: Cell, attachment: Attachment, deadline: float) -> tuple[int, int]:
    """The counting pass: the same registration, with the counting handler in place of the no-op one.

    Returns the handler's count and QEMU's count of breakpoint traps.
    """
    attachment.count(on=True)
    with bench.guest.counted_interrupts() as interrupts:
        gtodbench.call(bench.guest, entry=cell.entry, calls=COUNTED_CALLS, time_limit=_left(cell, deadline))
    hits = attachment.hits()
    attachment.count(on=False)
    if hits != COUNTED_CALLS:
        raise EvidenceError(f"{COUNTED_CALLS} calls were made and the probe's handler ran {hits} times")
    return hits, interrupts[INT3]


def without_number(cell: Cell, status: Status, reason: str) -> CellRecord:
    """The outcome of a cell that has no number, with the reason."""
    return CellRecord(**_identity(cell), status=status, reason=reason)


def _record(
    bench: Bench,
    cell: Cell,
    target: Target,
    point: ProbePoint,
    measured: Measurement,
    proof: _Proof,
    baseline: float | None,
) -> CellRecord:
    taint = int(bench.guest.get("/proc/sys/kernel/tainted").decode("ascii").strip() or "0")
    check_taint(taint)
    value = mean(measured.samples)
    overhead = 0.0 if cell.probe == BASELINE else None if baseline is None else value - baseline
    if overhead is not None and overhead <= 0 and cell.probe != BASELINE:
        # Hits are counted in a pass of their own; on the exact clock a probe that was hit in the timed one shows there.
        raise EvidenceError(
            f"with the probe a call costs {value:g} instructions, without it {baseline:g}: it was not hit"
        )
    try:
        evidence = Evidence(
            mechanism=probes()[cell.probe].mechanism,
            probe_bytes=proof.seen.live.hex(),
            hits=proof.hits,
            int3=proof.int3,
            calls=COUNTED_CALLS if target.module is not None else measured.calls,
            restored=True,
            clocksource=CLOCKSOURCE,
            original_bytes=point.original.hex(),
            address=f"{point.address:#x}",
            symbol=point.name,
            flag=proof.seen.flags or "",
            detour=proof.detour,
            taint=taint,
            batches=measured.batches,
            disturbed=measured.disturbed,
        )
        return CellRecord(
            **_identity(cell),
            status="ok",
            samples=measured.samples,
            value=value,
            overhead=overhead,
            interval=None if overhead is None else (overhead, overhead),
            parameters={
                "kernel_release": bench.supplies.kernel.release,
                "entry": measured.entry,
                "calls": measured.calls,
                "point": point.name,
            },
            evidence=evidence,
            reference=_reference(cell),
        )
    except ValidationError as error:
        raise EvidenceError("what the guest reported makes no valid result", detail=str(error).splitlines()) from None


def _identity(cell: Cell) -> dict[str, object]:
    return {
        "id": cell.id,
        "cpu": cell.cpu,
        "smp": cell.smp,
        "kernel": cell.kernel,
        "probe": cell.probe,
        "handler": cell.handler,
        "benchmark": cell.benchmark,
        "metric": "cost per call",
        "clock": cell.clock,
        "unit": "instructions",
    }


def _reference(cell: Cell) -> ReferenceValue | None:
    column = probes()[cell.probe].column
    if cell.reference is None or column is None:
        return None
    table = reference_table(cell.reference)
    if column not in table.samples:
        return None
    return ReferenceValue(table=table.id, value=table.average(column), overhead=table.overhead(column), unit=table.unit)


def _left(cell: Cell, deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise GuestHang(f"the cell's time limit of {cell.time_limit} s is over", hint="raise it: --set time_limit=...")
    return left
