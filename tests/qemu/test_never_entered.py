# SPDX-License-Identifier: GPL-2.0-only
"""What do cells cost whose calls never enter the probed function, and what do cells of many points share?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest
from experiment_boot import artifacts_of, boot_of_calls

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.machine_code import decoded
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.kernels import kernels
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootTask, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellRecorded, Event, GuestBooted

KERNEL = "lab-i386-up"
CALLED, ALSO_CALLED, NEVER = "__ia32_sys_gettimeofday", "ktime_get_real_ts64", "__ia32_sys_sethostname"
BEHIND = "read_tsc"
"""It is called, too."""
POINTS = [CALLED, ALSO_CALLED, NEVER, BEHIND]
PROBES = ["none", "kprobe", "djprobe"]

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]


def measured(
    context: BuildContext, folder: Path, probes: list[str], points: list[str], profile: tuple[str, ...] = ()
) -> tuple[int, Mapping[tuple[str, str], CellRecord]]:
    """How many guests the cells took, and their records by probe and point."""
    boot = boot_of_calls(
        kernels=[KERNEL],
        machines=[{"cpu": "pentium4"}],
        probes=probes,
        points=points,
        benchmark={"name": "gtodbench", "calls": 100, "repeats": 2},
        **({"profile": list(profile)} if profile else {}),
    )
    artifacts = artifacts_of(context, boot)
    events: list[Event] = []
    task = BootTask(kinds().named(boot.kind), boot, boot.cells, folder / "boot1")
    run_boot(Session(task, artifacts, context, events.append))
    records = [event.record for event in events if isinstance(event, CellRecorded)]
    guests = sum(isinstance(event, GuestBooted) for event in events)
    return guests, {(record.probe, str(record.parameters["at"])): record for record in records}


Measured = tuple[int, Mapping[tuple[str, str], CellRecord]]


@pytest.fixture(scope="module")
def many(workshop: BuildContext, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Probes of some kinds at each of the points."""
    return measured(workshop, tmp_path_factory.mktemp("many"), PROBES, POINTS)


def test_a_point_that_calls_never_enter_fails_for_all_probes_and_costs_no_guest(many: Measured) -> None:
    guests, records = many
    for probe in PROBES:
        for point in (CALLED, ALSO_CALLED, BEHIND):
            assert records[probe, point].status == "ok", records[probe, point].reason
    assert records["none", NEVER].status == "ok"
    reasons = [records[probe, NEVER].reason or "" for probe in PROBES[1:]]
    assert [reason.splitlines()[0] for reason in reasons] == [
        "1000 calls were made and the probe's handler ran 0 times"
    ] * len(reasons)
    for reason in reasons:
        assert f"these calls execute no instruction of {NEVER}\n" in reason
        assert "call it; the measured calls execute that, on another path" in reason.replace("calls it", "call it")
        assert f"hint: these calls enter: {CALLED}, " in reason
        assert "entry_SYSENTER_32" not in reason  # it cannot be probed
    # The first one has tried it, and the others say so.
    assert [records["kprobe", NEVER].id in reason for reason in reasons] == [False, True]
    assert guests == 1


@pytest.mark.parametrize("profile", [(), ("symbols",)])
def test_a_place_that_calls_pass_by_in_a_function(
    workshop: BuildContext, tmp_path: Path, profile: tuple[str, ...]
) -> None:
    """Found out in another guest, or in the cell's own where that counts."""
    place = f"{ALSO_CALLED}+{passed_by(workshop):#x}"
    guests, records = measured(workshop, tmp_path, ["none", "kprobe"], [place, CALLED], profile)
    assert guests == 1
    reason = records["kprobe", place].reason or ""
    assert f"of {ALSO_CALLED}, at +0x0, " in reason
    assert f"but not the one at +{place.partition('+')[2]}: they take another path through it" in reason
    assert records["kprobe", CALLED].status == "ok"


def passed_by(context: BuildContext) -> int:
    """An offset in the function behind a jump that its calls take: the loop that waits for the timekeeper."""
    code = ready_kernel(context, kernels()[KERNEL]).code
    assert code is not None
    start = code.function(ALSO_CALLED)
    assert start is not None
    body = decoded(code.read(start, (code.following(start) or start) - start), start, code.word)
    return next(instruction.address - start for instruction in body if instruction.name == "pause")


def test_a_jump_that_is_not_hit_proves_nothing(workshop: BuildContext, tmp_path: Path) -> None:
    """It may have led past the handler: its guest is given up."""
    guests, records = measured(workshop, tmp_path, ["none", "djprobe"], [NEVER, CALLED])
    assert guests == 2
    assert {(probe, point) for (probe, point), record in records.items() if record.status == "failed"} == {
        ("djprobe", NEVER)
    }


def test_points_share_a_baseline_and_say_so(many: Measured) -> None:
    _, records = many
    timed, shared = records["none", CALLED], 0
    assert "timed_in" not in timed.parameters
    for before, point in itertools.pairwise(POINTS[: POINTS.index(BEHIND)]):
        baseline = records["none", point]
        earlier = [records[probe, before].text for probe in PROBES]
        if any(text is not None and text.switched for text in earlier):
            # The random pool is ready once in a guest's life (crng_is_ready), when depends on the host.
            timed = baseline
            assert "timed_in" not in baseline.parameters
            continue
        shared += 1
        assert baseline.parameters["timed_in"] == timed.id
        assert baseline.samples == timed.samples
        assert baseline.evidence != timed.evidence  # each has looked at its own point
    assert shared
    probed, plain = records["kprobe", ALSO_CALLED], records["none", ALSO_CALLED]
    assert (probed.value or 0) - (plain.value or 0) == probed.overhead
