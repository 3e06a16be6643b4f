# SPDX-License-Identifier: GPL-2.0-only
"""Do calls that vary keep their number and their profile where those without the probe cannot be counted?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.benchmarks.calls import measurement
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.cell_work import CallCounts, CellContext
from orchestrator.benchmarks.calls.program_failures import DisturbedError
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.errors import LabError, NoProfile
from orchestrator.results.contract import ProfileEvidence

DISTURBED = DisturbedError("no batch without an interrupt")
FAULTING = NoProfile("two samples differ: one that faults is counted twice, and calls that fault have no profile")
PROBED = CallCounts(ProfileEvidence(sha256="a" * 64, calls=100, instructions=4200, int3=0))
PLAIN = [Measurement((40.0,), (40.0,), "sysenter", 100, batches=2, disturbed=0)] * 2


@dataclass(frozen=True)
class UncountedCalls(Calls):
    """Calls that cannot be counted, and why."""

    error: LabError = DISTURBED

    def measure_marked(self, *_: object, **__: object) -> Any:
        raise self.error


@dataclass(frozen=True)
class VaryingCell:
    id: str = "cpu/kernel/probed"
    compared_with: tuple[str, ...] = ("cpu/kernel/none",)
    counts_classes: bool = False
    profile: tuple[str, ...] = ("symbols",)


def varying_work(folder: Path, error: LabError) -> CellContext:
    counts = folder / "counts"
    counts.touch()
    guest = SimpleNamespace(counts_file=counts, machine=SimpleNamespace(counter="counter"))
    work = CellContext(
        ready=cast(Any, SimpleNamespace(guest=guest, symbols=None)),
        cell=cast(Any, VaryingCell()),
        setup=cast(Any, SimpleNamespace(module=None)),
        workload=UncountedCalls(["calls"], 100, error=error),
        kind=cast(Any, None),
        point=cast(Any, None),
        deadline=cast(Any, SimpleNamespace(left=lambda: 1.0)),
        cache=cast(Any, None),
        profile=folder / "probed.json.gz",
    )
    return replace(work, varies=True)


@pytest.mark.parametrize("error", [DISTURBED, FAULTING])
def test_the_probed_profile_stays_and_a_note_says_why_it_is_alone(tmp_path: Path, error: LabError) -> None:
    counts = measurement._beside_plain(varying_work(tmp_path, error), PLAIN, PROBED)
    assert counts.profile == PROBED.profile
    assert list(measurement._profile_notes(counts)) == [f"no profile of these calls without the probe: {error.what}"]


def test_calls_that_had_no_profile_with_the_probe_are_not_counted_without_it(tmp_path: Path) -> None:
    uncounted = CallCounts(no_profile="no batch without an interrupt")
    assert measurement._beside_plain(varying_work(tmp_path, DISTURBED), PLAIN, uncounted) == uncounted
