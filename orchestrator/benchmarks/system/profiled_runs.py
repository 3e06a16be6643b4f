# SPDX-License-Identifier: GPL-2.0-only
"""The profile of a cell's warm runs, and the instructions of each that were the instrumentation's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.system.figures import Run, SystemFigures
from orchestrator.benchmarks.system.instrumentation import Instrumentation
from orchestrator.benchmarks.system.recording import recorder_of
from orchestrator.benchmarks.system.task import SystemCell
from orchestrator.benchmarks.system.work import REPORT
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.rest import at_rest
from orchestrator.probes.marker_sites import marker_code
from orchestrator.probes.recorder_report import Site, parse_report
from orchestrator.results.contract import ProfileEvidence
from orchestrator.run.boot import Session
from orchestrator.run.unattended_profile import WorkCounts
from orchestrator.steps import step

_MOST_AROUND = 1_000_000
"""Ticks of the TSC between the marks and the readings of the clock: two system calls, or a timer's tick in one."""


@dataclass(frozen=True)
class ProfiledRuns:
    """The proof of the profile, and by warm run the instructions of the instrumentation."""

    proof: ProfileEvidence
    instrumentation: Sequence[float]


def profiled_runs(session: Session, cell: SystemCell, guest: Guest, figures: SystemFigures) -> ProfiledRuns | None:
    """Write the cell's profile, if it is to have one. Raises EvidenceError unless all was counted."""
    file = session.profile_file(cell)
    if file is None:
        return None
    counts = WorkCounts.of(guest, _module(session, cell))
    sites = parse_report(guest.get(REPORT)).sites if recorder_of(cell) is not None else ()
    # 80,000 instructions a run take the host as long as some runs take the guest.
    with step("profile the runs"), at_rest(guest):
        warm = counts.regions[1:]  # the first is the cold run's
        work = counts.counted(warm, [_ticks(run) for run in figures.warm])
        own = _instrumentation(session.artifacts.kernel, sites, counts)
        profile = counts.profile(work, cell.id, calls=len(work.regions), unit="run")
        proof = counts.write(work, profile, file)
        return ProfiledRuns(proof, [float(own.executed(region)) for region in work.regions])


def _module(session: Session, cell: SystemCell) -> Module | None:
    return next(iter(session.setup(cell).modules), None)


def _ticks(run: Run) -> int:
    around = run.ticks - run.real
    if not 0 <= around <= _MOST_AROUND:
        raise EvidenceError(f"a run took {run.real:.0f} ns by one clock, and {run.ticks} ticks of the TSC around it")
    return run.ticks


def _instrumentation(kernel: Kernel, sites: Sequence[Site], counts: WorkCounts) -> Instrumentation:
    markers = () if kernel.code is None else marker_code(kernel.code)
    return Instrumentation(counts.places, markers, counts.module_memory, sites)
