# SPDX-License-Identifier: GPL-2.0-only
"""Which measurements and failures do cells of one guest share, and when do calls count as never having come?"""

from __future__ import annotations

import pytest
from loaded_tables import calls_experiment

from orchestrator.benchmarks.calls.benchmarks import call_probe
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.cell_work import GuestCache, HitCounts
from orchestrator.benchmarks.calls.counting_pass import _is_accounted_for
from orchestrator.benchmarks.calls.samples import Figures
from orchestrator.errors import NotEntered
from orchestrator.experiment.plan import plan

FIGURES = Figures(
    *(0.0, (0.0, 0.0)),
    samples=(422.0,),
    value=422.0,
    entry="int80",
    calls=1000,
    batch=1000,
    batches=1,
    disturbed=0,
    outcome=None,
)
FIRST, SECOND = "vfs_read", "vfs_write"


def cells(**benchmark: object) -> dict[tuple[str, str], CallCell]:
    described = calls_experiment(
        machines=[{"cpu": "pentium4"}],
        probes=["none", "kprobe", "djprobe"],
        points=[FIRST, SECOND],
        benchmark={"name": "gtodbench", "calls": 1000, "repeats": 2, **benchmark},
    )
    return {(cell.probe, str(cell.point)): cell for cell in plan(described).cells}


def test_points_share_a_baseline_of_the_same_calls() -> None:
    known, asked = GuestCache(), cells()
    assert known.baseline(asked["none", FIRST]) is None
    known.keep_baseline(asked["none", FIRST], FIGURES, None)
    shared = known.baseline(asked["none", SECOND])
    assert shared is not None
    assert (shared.cell_id, shared.figures) == (asked["none", FIRST].id, FIGURES)
    # A call has its benchmark's arguments where it is given none.
    same_call = {"name": "syscall", "call": "gettimeofday"}
    for other in ({"calls": 999}, {"repeats": 3}, {"entry": "int80"}, same_call):
        assert known.baseline(cells(**other)["none", FIRST]) is None
    # How often a call enters a point is no part of the call.
    assert known.baseline(cells(hits=2)["none", FIRST]) is not None


def test_a_switched_static_branch_ends_a_baseline() -> None:
    known, asked = GuestCache(), cells()
    known.note_switched(1)
    known.keep_baseline(asked["none", FIRST], FIGURES, None)
    known.note_switched(1)
    assert known.baseline(asked["none", SECOND]) is not None
    known.note_switched(2)
    assert known.baseline(asked["none", SECOND]) is None


def test_what_one_probe_has_proved_fails_the_others_of_its_point() -> None:
    known, asked = GuestCache(), cells()
    known.keep_not_entered(asked["kprobe", FIRST], NotEntered("1000 calls were made"))
    with pytest.raises(NotEntered, match=f"1000 calls were made\n +seen by {asked['kprobe', FIRST].id}"):
        known.check_entered(asked["djprobe", FIRST], call_probe("djprobe"))
    known.check_entered(asked["djprobe", SECOND], call_probe("djprobe"))
    known.check_entered(asked["none", FIRST], call_probe("none"))
    known.check_entered(cells(entry="int80")["djprobe", FIRST], call_probe("djprobe"))
    kind = call_probe("kprobe").model_copy(update={"file": "own.c"})
    known.check_entered(asked["kprobe", FIRST], kind)
    known.check_entered(asked["kprobe", FIRST], call_probe("tracepoint"))


@pytest.mark.parametrize(
    ("probe", "counted", "accounted"),
    [
        ("kprobe", HitCounts(0, 0, 0, None), True),
        ("kprobe", HitCounts(0, None, 0, None), True),
        ("kprobe", HitCounts(2, 3, 10, None), True),
        ("kprobe", HitCounts(0, 3, 4, None), True),  # one of the others came before traps were counted
        ("kprobe", HitCounts(2, 3, 2, None), False),  # the program's own hits took fewer traps than they had to
        ("kprobe", HitCounts(0, 3, 7, None), False),  # a trap that is nobody's
        ("kprobe", HitCounts(0, 0, 2000, None), False),  # the calls trapped, and the handler was not run
        ("kprobe", HitCounts(0, 1000, 2000, None), False),  # as many others as calls: who was counted is in doubt
        ("kprobe", HitCounts(0, 0, None, None), False),  # KVM
        ("kprobe-boosted", HitCounts(0, 1, 1, None), True),
        ("djprobe", HitCounts(0, 0, 0, None), False),
        ("kprobe-optimized", HitCounts(0, 0, 0, None), False),
    ],
)
def test_when_all_traps_are_accounted_for(probe: str, counted: HitCounts, accounted: bool) -> None:
    assert _is_accounted_for(call_probe(probe), counted, 1000) == accounted
