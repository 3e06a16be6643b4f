# SPDX-License-Identifier: GPL-2.0-only
"""Runs of a whole program, counted by system call, with a probe and without."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from orchestrator.arch import INT3 as INT3_BYTE
from orchestrator.benchmarks.calls.cell_work import (
    CallCounts,
    CellContext,
    Entries,
    HitCounts,
    PointObservations,
    armed_probe,
    without_skips,
)
from orchestrator.benchmarks.calls.counted_user_hits import HitsOfRun, UserHits, check_hits, check_plain
from orchestrator.benchmarks.calls.samples import Figures, run_figures
from orchestrator.benchmarks.calls.whole_programs import WholeProgram
from orchestrator.errors import EvidenceError, NotEntered
from orchestrator.probes.attachment import Attachment, Called
from orchestrator.probes.evidence import check_traps
from orchestrator.probes.user_point import UserPoint
from orchestrator.profile.counted.counter import Counter as ProfileCounter
from orchestrator.profile.counted.counter import stored
from orchestrator.profile.counted.counts import Region
from orchestrator.profile.counted.kernel_entries import RunCounts, counted_runs, entered_parts, median_run, run_counts
from orchestrator.profile.counted.timed_work import CountedWork
from orchestrator.results.contract import ProfileEvidence
from orchestrator.run.guest_checks import check_clocksource
from orchestrator.steps import step


@dataclass(frozen=True)
class _CountedGuest:
    """Runs of a program in a guest that counts instructions."""

    work: CellContext
    program: WholeProgram

    @cached_property
    def counter(self) -> ProfileCounter:
        return ProfileCounter(self.work.ready.guest, self.work.ready.symbols, self.work.setup.module)

    def runs(self, runs: int, caller: str | None = None, **cold: int) -> CountedWork:
        """Runs that QEMU counted. Raises EvidenceError unless it counted what the clock did, but for faults."""
        guest, left = self.work.ready.guest, self.work.deadline.left()
        with step("count the program's instructions"):
            mark = self.counter.mark()
            timed = self.program.measure_counted(guest, runs, caller=caller, time_limit=left, **cold)
            check_clocksource(guest)
            regions = self.counter.regions_since(mark)
            os.truncate(guest.counts_file, mark)  # some megabytes a run
            return self.counter.work(regions, [int(ticks) for ticks in timed.samples])

    def plain_runs(self, runs: int) -> Sequence[RunCounts]:
        # Places are of the modules that are loaded now.
        places = ProfileCounter(self.work.ready.guest, self.work.ready.symbols).places()
        regions = self.runs(runs).regions
        if isinstance(self.work.point, UserPoint):
            check_plain([entered_parts(run, places) for run in regions])
        return run_counts(regions, places)

    def hits_of(self, regions: Sequence[Region], attachment: Attachment) -> Sequence[HitsOfRun]:
        """The hits of runs at a point in user space. Raises EvidenceError, NotEntered."""
        places, runs = self.counter.places(), list[HitsOfRun]()
        for region, counts in zip(regions, run_counts(regions, places), strict=True):
            entered, hits = entered_parts(region, places), attachment.runs_among(region.executed())
            if hits is None:  # an event's, which is no program: its traps
                hits = entered["exception", "int3"] // (self.work.kind.int3_per_hit or 1)
            runs.append(HitsOfRun(hits, entered, counts))
        check_hits(runs)
        return runs

    def counted_hits(self, attachment: Attachment) -> tuple[Region, int, Sequence[str]]:
        """A run, and all hits of a handler that counts them. Raises HitSkipped.

        The hits of a module that does not are the entries of its functions that are named.
        """
        module = self.work.setup.module
        if attachment.entered_module is not None and module is not None:
            (run,) = self.runs(1, cold=0).regions
            entered = Entries.of(self.counter.places().symbols(run.counts), module.name, 1)
            hits = _entries(run, self.work.point.address)
            return run, hits, entered.proved(hits, module, self.work.ready.guest) if hits else ()
        with attachment.separate_caller() as caller:
            attachment.set_handler("count")
            (run,) = self.runs(1, caller, cold=0).regions
            attachment.set_handler("noop")
        hits, foreign_hits = attachment.counts(Called("program", 1, frozenset()))
        return run, hits + (foreign_hits or 0), ()

    def stored(self, counted: CountedWork, attachment: Attachment | None = None) -> ProfileEvidence:
        assert self.work.profile is not None
        calls = len(counted.regions)
        profile = self.counter.profile_work(counted, self.work.cell.id, calls=calls, unit="run")
        lined = profile if attachment is None else attachment.with_code_lines(profile)
        return stored(lined, self.work.profile, counted)


def _entries(run: Region, address: int) -> int:
    return sum(counts.executed for code, counts in run.counts.items() if code.address == address)


def plain_runs(work: CellContext, program: WholeProgram) -> tuple[Figures, ProfileEvidence]:
    """Runs without a probe. Raises EvidenceError."""
    guest = _CountedGuest(work, program)
    counted = guest.runs(work.cell.repeats)
    runs = counted_runs(counted.regions, guest.counter.places())
    evidence = guest.stored(counted).model_copy(update={"parts": runs.parts})
    return run_figures(runs.instructions, ()), evidence


def probed_runs(work: CellContext, program: WholeProgram) -> tuple[Figures, PointObservations]:
    """Runs with the probe between runs without it, and one in which its handler counts as many hits as QEMU entries.

    The kernel's state changes from run to run, and lastingly: the runs of another cell are no baseline. Raises
    EvidenceError, NotEntered where the program never enters the point.
    """
    guest = _CountedGuest(work, program)
    if isinstance(work.point, UserPoint):
        return _user_runs(guest, work.point)
    around = (work.cell.repeats + 1) // 2
    plain = guest.plain_runs(around)
    with armed_probe(work) as armed:
        counted = guest.runs(work.cell.repeats)
        armed.check_same("while the runs were counted")
        attachment = armed.attachment
        places, profile = guest.counter.places(), guest.stored(counted, attachment)
        run, hits, entered = without_skips(lambda: guest.counted_hits(attachment))
        entries = _entries(run, work.point.address)
        int3 = sum(counts.executed for code, counts in run.counts.items() if code.code == f"{INT3_BYTE:02x}")
        attachment.set_handler(work.handler)
        if not entries:
            raise NotEntered("a run of the program never entered the probe point")
        # What starts the program, and other processes, enter it too.
        if hits < entries:
            raise EvidenceError(f"a run entered the point {entries} times and the probe's handler ran {hits} times")
        check_traps(work.kind, entries, 0, int3)
        armed.check_same("while the hits were counted")
        counted_hits = HitCounts(entries, hits - entries, int3, None)
        proof = armed.proof(entries, counted_hits, entered=entered, extras=attachment.extras())
    runs = counted_runs(counted.regions, places, [*plain, *guest.plain_runs(around)])
    profile = profile.model_copy(update={"parts": runs.parts})
    return run_figures(runs.instructions, runs.plain), replace(proof, counts=CallCounts(profile))


def _user_runs(guest: _CountedGuest, point: UserPoint) -> tuple[Figures, PointObservations]:
    """Runs with a probe in user space between runs without it: what their hits execute, each from its trap on.

    Each run proves its own hits: by executions of the probe's program, or by traps that no run has without it. In one
    more the witness counts at least as many, those of other processes among them. Raises EvidenceError, NotEntered.
    """
    work, around = guest.work, (guest.work.cell.repeats + 1) // 2
    plain = guest.plain_runs(around)
    with armed_probe(work) as armed:
        counted = guest.runs(work.cell.repeats)
        armed.check_same("while the runs were counted")
        attachment = armed.attachment
        places, profile = guest.counter.places(), guest.stored(counted, attachment)
        hits = guest.hits_of(counted.regions, attachment)
        run, witnessed, _ = without_skips(lambda: guest.counted_hits(attachment))
        (seen,) = guest.hits_of([run], attachment)
        attachment.set_handler(work.handler)
        if witnessed < seen.hits:
            raise EvidenceError(f"a run took {seen.hits} hits and the probe's handler ran {witnessed} times")
        check_hits([*hits, seen])
        armed.check_same("while the hits were counted")
        of_run = hits[median_run(counted_runs(counted.regions, places).instructions)]
        counted_hits = HitCounts(of_run.hits, witnessed - seen.hits, of_run.entered["exception", "int3"], None)
        proof = armed.proof(1, counted_hits, extras=attachment.extras())
    plain = [*plain, *guest.plain_runs(around)]
    runs = counted_runs(counted.regions, places, plain)
    profile = profile.model_copy(update={"parts": runs.parts})
    user_hits = UserHits(hits, plain, has_semaphore=bool(point.semaphore))
    figures = user_hits.figures(run_figures(runs.instructions, runs.plain), of_run)
    facts = {**proof.facts, **user_hits.facts()}
    return figures, replace(proof, counts=CallCounts(profile), hits_per_call=of_run.hits, facts=facts)
