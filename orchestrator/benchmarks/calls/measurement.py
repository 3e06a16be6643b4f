# SPDX-License-Identifier: GPL-2.0-only
"""One cell in a running guest: armed, proved, timed, counted, taken out, proved again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.calls.figures import Figures, exact_baseline, exact_figures, paired_figures
from orchestrator.benchmarks.calls.proof import Proof, count_hits
from orchestrator.benchmarks.calls.workload import Measurement, Workload
from orchestrator.benchmarks.markers.measurement import measure_marker
from orchestrator.catalog.probes import ProbeKind, probe_kind
from orchestrator.errors import BuildError, EvidenceError, UnsupportedError
from orchestrator.experiment.cell import Cell
from orchestrator.probes.attachment import Attachment, attached
from orchestrator.probes.evidence import Observation, check_same, check_untouched, mechanism_seen, observe
from orchestrator.probes.loading import RefusedError
from orchestrator.probes.point import ProbePoint, find_point
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.run.boot_artifacts import Target
from orchestrator.run.deadline import Deadline
from orchestrator.run.outcome import asked, identity, reference, without_number
from orchestrator.run.postconditions import check_clocksource, read_taint, valid_result
from orchestrator.run.ready_guest import CLOCKSOURCE, ReadyGuest


@dataclass(frozen=True)
class _Armed:
    """A probe in place, and how it was seen to be."""

    attachment: Attachment
    seen: Observation
    detour: str | None


@dataclass(frozen=True)
class _Work:
    """A cell under way: where, what, and until when."""

    ready: ReadyGuest
    cell: Cell
    target: Target
    workload: Workload
    kind: ProbeKind
    point: ProbePoint
    deadline: Deadline


def measure_cell(ready: ReadyGuest, cell: Cell, baseline: float | None, events: Path | None = None) -> CellRecord:
    """Measure a cell and prove it. ``baseline`` is the exact cost without a probe, if it is known already.

    What a recording handler wrote goes to the file ``events``, if one is given.
    Raises EvidenceError when a proof fails, BuildError when the cell's module did not build, GuestError when the guest
    is in trouble; UnsupportedError when CPU, kernel or module cannot do what is asked for.
    """
    target = ready.artifacts.targets[cell.id]
    if isinstance(target, str):
        return without_number(ready.artifacts, cell, "unsupported", target)
    for part in (target.module, target.workload):
        if isinstance(part, BuildError):
            raise part
    if target.workload is None:
        assert isinstance(target.module, Module)
        return measure_marker(ready, cell, target.module, baseline, target.notes)
    assert not isinstance(target.workload, BuildError)
    mark = ready.guest.console.length()
    work = _Work(
        ready=ready,
        cell=cell,
        target=target,
        workload=target.workload,
        kind=probe_kind(cell.probe),
        point=_find_point(ready, cell, target),
        deadline=Deadline(cell.time_limit),
    )
    work.workload.prepare(ready.guest)
    exact = cell.clock == "instructions" and work.workload.exact
    try:
        figures, proof = _exact(work, baseline, events) if exact else _paired(work, events)
    except RefusedError as error:
        if work.kind.ability is None:
            raise
        raise UnsupportedError(error.reason) from None  # which is what was to be shown, or is not
    ready.guest.check_console(mark)
    return _record(work, figures, proof)


def _find_point(ready: ReadyGuest, cell: Cell, target: Target) -> ProbePoint:
    says_offset = cell.point is not None and "+" in cell.point
    point = find_point(ready.guest, ready.symbols, target.symbol, target.offset, at_entry=not says_offset)
    return replace(point, is_called_directly=cell.point is None)


def _exact(work: _Work, baseline: float | None, events: Path | None) -> tuple[Figures, Proof]:
    if work.target.module is None:
        measured = _timed(work)
        return exact_baseline(measured), _untouched(work, measured.calls)
    with _armed(work) as armed:
        measured = _timed_between(work, armed)
        proof = _proved(work, armed, events)
    return exact_figures(measured, baseline), proof


def _paired(work: _Work, events: Path | None) -> tuple[Figures, Proof]:
    """Samples with the probe and without it in turn, so that what changes on the host falls on both."""
    rounds = range(work.cell.repeats)
    if work.target.module is None:
        plain = [_timed(work) for _ in rounds]
        return paired_figures(plain, [], work.cell.clock), _untouched(work, plain[0].calls)
    plain, probed = [_timed(work)], []
    for number in rounds:
        with _armed(work) as armed:
            probed.append(_timed_between(work, armed))
            if number in (rounds[0], rounds[-1]):
                proof = _proved(work, armed, events)
        plain.append(_timed(work))
    return paired_figures(plain, probed, work.cell.clock), proof


@contextmanager
def _armed(work: _Work) -> Iterator[_Armed]:
    assert work.target.module is not None
    assert not isinstance(work.target.module, BuildError)
    with attached(work.ready.guest, work.kind, work.target.module, work.point) as attachment:
        if work.cell.handler != "noop":
            attachment.handle(work.cell.handler)
        seen = attachment.wait_until_armed()
        yield _Armed(attachment, seen, attachment.detour(seen))


def _timed_between(work: _Work, armed: _Armed) -> Measurement:
    """The timed calls, and the probe the same before and after them."""
    try:
        measured = _timed(work)
    except EvidenceError:
        # Samples differ when the probe does, and then that is the news.
        _check_same(work, armed, "while the calls were timed")
        raise
    _check_same(work, armed, "while the calls were timed")
    return measured


def _check_same(work: _Work, armed: _Armed, when: str) -> None:
    check_same(work.kind, armed.seen, armed.attachment.observe(), armed.attachment.point, when)


def _timed(work: _Work) -> Measurement:
    cell, guest, workload = work.cell, work.ready.guest, work.workload
    ticks = int(work.ready.artifacts.kernel.config["CONFIG_HZ"])
    if cell.clock == "instructions" and workload.exact:
        measured = workload.measure_exact(
            guest, repeats=cell.repeats, ticks_per_second=ticks, time_limit=work.deadline.left()
        )
    else:
        measured = workload.measure_one(guest, ticks_per_second=ticks, time_limit=work.deadline.left())
    check_clocksource(guest)
    return measured


def _proved(work: _Work, armed: _Armed, events: Path | None) -> Proof:
    counted = count_hits(
        work.ready, work.workload, work.kind, armed.attachment, work.cell.handler, events, work.deadline.left()
    )
    _check_same(work, armed, "while the hits were counted")
    return Proof(
        point=armed.attachment.point,
        seen=armed.seen,
        calls=work.workload.counted,
        hits=counted.hits,
        others=counted.others,
        int3=counted.int3,
        recorded=counted.hits if work.cell.handler == "record" else None,
        detour=armed.detour,
        memory=armed.attachment.memory(),
        places=armed.attachment.places(),
    )


def _untouched(work: _Work, calls: int) -> Proof:
    seen = observe(work.ready.guest, work.point)
    check_untouched(work.point, seen, "after the timed calls")
    return Proof(work.point, seen, calls)


def _record(work: _Work, figures: Figures, proof: Proof) -> CellRecord:
    cell, point = work.cell, proof.point
    taint = read_taint(work.ready.guest)
    with valid_result():
        evidence = Evidence(
            mechanism=mechanism_seen(work.kind, point, proof.seen),
            probe_bytes=proof.seen.live.hex(),
            hits=proof.hits,
            int3=proof.int3,
            calls=proof.calls,
            hits_per_call=work.workload.hits,
            others=proof.others,
            restored=True,
            clocksource=CLOCKSOURCE,
            original_bytes=point.original.hex(),
            address=f"{point.address:#x}",
            symbol=point.name,
            flag=proof.seen.flags or "",
            detour=proof.detour,
            recorded=proof.recorded,
            taint=taint,
            batches=figures.batches,
            disturbed=figures.disturbed,
        )
        return CellRecord(
            **(identity(work.ready.artifacts, cell) | {"parameters": _parameters(work, figures, proof)}),
            status="ok",
            notes=(*work.target.notes, *figures.notes),
            samples=figures.samples,
            value=figures.value,
            overhead=figures.overhead,
            interval=figures.interval,
            verdict=figures.verdict,
            evidence=evidence,
            reference=reference(cell),
        )


def _parameters(work: _Work, figures: Figures, proof: Proof) -> dict[str, str | int]:
    """What else tells the cell from others, and what a report may want to say of it. Bytes where memory is told."""
    told: dict[str, str | int] = {
        **asked(work.cell),
        "kernel_release": work.ready.artifacts.kernel.release,
        "entry": figures.entry,
        "calls": figures.calls,
        "point": proof.point.name,
        "accelerator": "kvm" if work.ready.artifacts.machine.timing == "kvm" else "tcg",
    }
    told.update(proof.places)
    if proof.memory is not None:
        told["probe_bytes_plain"], told["probe_bytes_extra"] = proof.memory
    return told
