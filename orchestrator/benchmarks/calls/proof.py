# SPDX-License-Identifier: GPL-2.0-only
"""The counting pass of a cell: it accounts for every hit, every breakpoint trap and every recorded event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.benchmarks.calls.workload import ExactWorkload, Workload
from orchestrator.catalog.probes import Extra, ProbeKind
from orchestrator.errors import EvidenceError, NotEntered
from orchestrator.guest.interrupts import INT3, Ring
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.call_results import CallResults
from orchestrator.probes.evidence import Observation, check_traps
from orchestrator.probes.point import ProbePoint
from orchestrator.results.contract import ProfileEvidence
from orchestrator.run.deadline import CellDeadline
from orchestrator.run.ready_guest import ReadyGuest

_PASSES = 5
"""Counting passes, at most."""

_MOST_INTERRUPTS = 10
"""Hits by interrupts in a counting pass: it takes a timer tick's period or two."""


@dataclass(frozen=True)
class Counted:
    """Hits of the calls, and concurrent hits by others; ``int3`` is None where traps cannot be counted.

    ``results`` is what the calls returned, None where that is not known; ``besides`` is the hits of the program itself,
    which are not among the ``hits``.
    """

    hits: int
    others: int | None
    int3: int | None
    results: CallResults | None
    besides: int = 0


@dataclass(frozen=True)
class Proof:
    """The observations at the probe point during the timed and the counting pass.

    ``int3`` is None where traps cannot be counted, ``recorded`` where the handler records no events, ``others`` where
    hits of other processes are not counted. ``extras`` is what the hits passed besides the handler, ``extra_sizes`` how
    many instructions of a hit that is, None where it was not measured; ``removed`` is what they were rid of.
    ``results`` is what the calls of the counting pass returned, None where that is not known. ``timed_in`` is the cell
    of the same guest that timed the same calls without a probe, None where this cell did. ``profile`` is the proof of
    the cell's profile, None where it has none. ``watched`` is what the system calls of a user's function return.
    """

    point: ProbePoint
    seen: Observation
    calls: int
    hits: int = 0
    others: int | None = None
    int3: int | None = 0
    recorded: int | None = None
    detour: str | None = None
    memory: tuple[int, int] | None = None
    places: Mapping[str, int] = field(default_factory=dict)
    results: CallResults | None = None
    extras: Sequence[Extra] = ()
    extra_sizes: Mapping[Extra, float] | None = None
    removed: Sequence[Extra] = ()
    timed_in: str | None = None
    profile: ProfileEvidence | None = None
    watched: Mapping[str, CallResults] = field(default_factory=dict)


class _Work(Protocol):
    """What the counting pass needs of the cell that is being measured."""

    @property
    def ready(self) -> ReadyGuest: ...
    @property
    def cell(self) -> CallCell: ...
    @property
    def workload(self) -> Workload: ...
    @property
    def kind(self) -> ProbeKind: ...
    @property
    def deadline(self) -> CellDeadline: ...


def count_hits(
    work: _Work, attachment: Attachment, events: Path | None = None, before: Counted | None = None
) -> Counted:
    """Make the counting pass's calls and account for each hit of the process that makes them.

    The probe stays registered as in the timed pass; a handler that neither counts nor records is replaced by a
    counting one during this pass. Recorded events go to the file ``events``, if one is given. ``before`` is an earlier
    count of the same registration. Raises EvidenceError; NotEntered where only others ran into the breakpoint, or
    nobody.
    """
    workload, kind = work.workload, work.kind
    besides = _own_hits(work, attachment) if before is None else before.besides
    expected = workload.counted * workload.hits
    for _ in range(_PASSES):
        counted = _pass(work, attachment, workload.counted, events)
        hits = counted.hits - besides
        # An interrupt that ends in the program enters some functions as well: exit_to_user_mode_prepare(). As a timed
        # batch is repeated that one fell into, so is the pass, for points that nobody has chosen.
        if not (expected < hits <= expected + _MOST_INTERRUPTS and work.cell.task.is_found):
            break
    if hits != expected:
        each = f" (hits: {workload.hits})" if workload.hits != 1 else ""
        if hits == 0 and _is_accounted_for(kind, counted, workload.counted):
            raise NotEntered(f"{workload.counted} calls were made{each} and the probe's handler ran 0 times")
        hint = f"if each call enters it {hits // workload.counted} times, set hits: {hits // workload.counted}"
        raise EvidenceError(
            f"{workload.counted} calls were made{each} and the probe's handler ran {hits} times",
            hint=hint if hits and hits % workload.counted == 0 else "",
        )
    attachment.handle(work.cell.handler)
    int3 = counted.int3
    if int3 is not None:
        check_traps(kind, counted.hits, counted.others or 0, int3)
    # Traps are attributed to these hits only where their number is exactly what these hits take.
    taken = kind.int3_per_hit or 0
    sure = (not besides or not taken) and (not counted.others or int3 == hits * taken)
    if counted.others is None and int3 is not None and hits:
        sure = sure and int3 % hits == 0  # a part of a trap a hit is others', which the module does not count
    return Counted(hits, counted.others, int3 if sure else None, counted.results, besides)


def _own_hits(work: _Work, attachment: Attachment) -> int:
    """The program's hits in a pass of no calls: it writes its process id to a file, which is a system call."""
    return _pass(work, attachment, 0, None).hits if isinstance(work.workload, ExactWorkload) else 0


def _is_accounted_for(kind: ProbeKind, counted: Counted, calls: int) -> bool:
    """Whether QEMU saw no breakpoint trap but of hits that the module counted, and those are not the calls' own.

    There may be none; and others' hits may have come while traps were not counted: the guest's agent closes files. Of
    other mechanisms QEMU sees nothing: a jump may have led past the handler.
    """
    others = counted.others or 0
    each = kind.int3_per_hit if kind.mechanism == "int3" else None
    if each is None or counted.int3 is None or others >= calls:
        return False
    return counted.hits * each <= counted.int3 <= (counted.hits + others) * each


def _pass(work: _Work, attachment: Attachment, calls: int, events: Path | None) -> Counted:
    ready, recording = work.ready, work.cell.handler == "record"
    with attachment.one_caller() as caller:
        attachment.handle("record" if recording else "count")
        with _counted_traps(ready, 3 if work.kind.site == "program" else 0) as traps:
            called = work.workload.call(ready.guest, calls, caller=caller, time_limit=work.deadline.left())
        attachment.handle("noop")
    int3 = None if traps is None else traps[INT3]
    if recording:
        if events is not None:
            events.parent.mkdir(exist_ok=True)
        return Counted(*attachment.recorded(called, ready.symbols, events), int3, called.results)
    return Counted(*attachment.counts(called), int3, called.results)


@contextmanager
def _counted_traps(ready: ReadyGuest, ring: Ring) -> Iterator[Counter[int] | None]:
    """QEMU's count of traps in code of a ring; None under KVM, where the host's CPU runs the guest."""
    if ready.artifacts.machine.timing == "kvm":
        yield None
        return
    with ready.guest.counted_interrupts(ring) as counts:
        yield counts
