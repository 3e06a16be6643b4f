# SPDX-License-Identifier: GPL-2.0-only
"""The counting pass: the hits, breakpoint traps and events of a known number of calls, each accounted for."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.cell_work import MOST_PASSES, CellContext, HitCounts, without_skips
from orchestrator.catalog.probes import ProbeKind, is_recording
from orchestrator.errors import EvidenceError, NotEntered
from orchestrator.guest.trap_counter import INT3, PrivilegeRing
from orchestrator.probes.attachment import Attachment
from orchestrator.probes.evidence import check_traps
from orchestrator.probes.user_point import UserPoint, check_optimised

_MOST_INTERRUPTS = 20
"""Hits by interrupts in a counting pass, which takes a timer tick's period or two: some functions have six a tick."""


def count_hits(
    work: CellContext, attachment: Attachment, events: Path | None = None, before: HitCounts | None = None
) -> HitCounts:
    """Run the counting pass, and account for every hit, breakpoint trap and recorded event.

    The probe stays registered as in the timed pass; during this pass a handler that does nothing is replaced by one
    that counts. Recorded events are written to the file ``events``, if it is given. ``before`` is an earlier count of
    the same registration. Raises EvidenceError; NotEntered where the calls never hit the probe.
    """
    workload, kind = work.workload, work.kind
    besides = 0 if before is None else before.besides
    if before is None and isinstance(workload, Calls):
        # The program itself writes its process id to a file, which is a system call.
        besides = without_skips(lambda: _pass(work, attachment, 0, None)).hits
    expected = workload.counted * workload.hits
    for _ in range(MOST_PASSES):
        counted = without_skips(lambda: _pass(work, attachment, workload.counted, events))
        hits = counted.hits - besides
        # A timer tick during the calls enters some functions as well: read_tsc() six times on Linux 6.1,
        # exit_to_user_mode_prepare() once. The pass is then repeated, as a disturbed batch is. If each call has more
        # hits, the experiment's `hits` is wrong.
        if not expected < hits <= expected + _MOST_INTERRUPTS or hits % workload.counted == 0:
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
    attachment.set_handler(work.handler)
    int3 = counted.int3
    if int3 is not None:
        check_traps(kind, counted.hits, counted.foreign_hits or 0, int3)
    # Traps are attributed to these hits only where their number is exactly what these hits take.
    taken = kind.int3_per_hit or 0
    sure = (not besides or not taken) and (not counted.foreign_hits or int3 == hits * taken)
    if counted.foreign_hits is None and int3 is not None and hits:
        sure = sure and int3 % hits == 0  # a part of a trap a hit is others', which the module does not count
    return replace(counted, hits=hits, int3=int3 if sure else None, besides=besides)


def _is_accounted_for(kind: ProbeKind, counted: HitCounts, calls: int) -> bool:
    """Whether every breakpoint trap that QEMU saw is explained by hits that the module counted.

    Others may also hit the point while no traps are counted: the guest's agent closes files. QEMU does not see other
    mechanisms, where a jump may have bypassed the handler.
    """
    foreign_hits = counted.foreign_hits or 0
    each = kind.int3_per_hit if kind.mechanism in ("int3", "call") else None
    if each is None or counted.int3 is None or foreign_hits >= calls:
        return False
    return counted.hits * each <= counted.int3 <= (counted.hits + foreign_hits) * each


def check_live(work: CellContext, live: bytes | None) -> None:
    """Raise EvidenceError unless a process that has hit the point shows what the kernel makes of it then."""
    if work.kind.mechanism == "call" and isinstance(work.point, UserPoint):
        kernel = work.ready.artifacts.kernel
        check_optimised(kernel.release, kernel.spec.arch, work.point, live or b"")


def _pass(work: CellContext, attachment: Attachment, calls: int, events: Path | None) -> HitCounts:
    ready, recording = work.ready, is_recording(work.handler)
    ring: PrivilegeRing = 3 if work.kind.site == "program" else 0
    # Under KVM the host's CPU executes the guest, and QEMU sees no traps.
    is_counted = ready.artifacts.machine.timing != "kvm"
    with attachment.separate_caller() as caller:
        attachment.set_handler(work.handler if recording else "count")
        with ready.guest.counted_interrupts(ring) if is_counted else nullcontext() as traps:
            called = work.workload.call(ready.guest, calls, caller=caller, time_limit=work.deadline.left())
        attachment.set_handler("noop")
    if recording and events is not None:
        events.parent.mkdir(exist_ok=True)
    hits, foreign_hits = attachment.recorded(called, ready.symbols, events) if recording else attachment.counts(called)
    int3 = None if traps is None else traps[INT3]
    if hits:  # without one a process takes no trap, and its place stays as it is
        int3 = None if int3 is None else int3 - work.kind.int3_per_process * len(called.pids)
        check_live(work, called.live)
    return HitCounts(hits, foreign_hits, int3, called.results, live=called.live)
