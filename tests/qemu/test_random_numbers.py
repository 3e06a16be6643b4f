# SPDX-License-Identifier: GPL-2.0-only
"""Do calls that draw random numbers cost the same, whenever they are made?"""

from __future__ import annotations

from pathlib import Path

import pytest
from elsewhere import ELSEWHERE
from experiment_boot import boot_of_calls, prepared_for

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.preparation import CallSetup
from orchestrator.run.benchmark_kind import Ready
from orchestrator.run.ready_guest import ReadyGuest

WORKLOAD = Path(__file__).with_name("workloads") / "opening.c"
KEY_LIFE = "61"
"""Seconds after which Linux 6.1 makes the generator of random numbers a new key."""
NEW_KEY = 10_000
"""Instructions that it takes there, about."""
OFTEN = 40
KERNELS = [
    pytest.param(
        kernel,
        marks=[
            pytest.mark.guest(kernel=kernel, cpu="xeon-e5410", timing="instructions"),
            *([ELSEWHERE, pytest.mark.kernels(kernel)] if kernel != "debian-amd64" else []),
        ],
    )
    for kernel in ("debian-amd64", "debian-amd64@6.12", "debian-amd64@7.3", "lab-i386-up")
]


@pytest.mark.parametrize("kernel", KERNELS)
def test_random_numbers_cost_the_same_in_a_young_guest_and_in_an_old_one(
    ready: ReadyGuest, workshop: BuildContext, kernel: str
) -> None:
    """A slab's objects are linked in a random order: the kernel draws a number for each slab that open() fetches."""
    workload = {"name": "workload", "file": str(WORKLOAD), "calls": 4000}
    boot = boot_of_calls(
        kernels=[kernel],
        machines=[{"cpu": "xeon-e5410"}],
        probes=["none"],
        points=["do_sys_open" if "i386" in kernel else "do_sys_openat2"],
        benchmark=workload,
    )
    guest, (cell,) = ready.guest, boot.cells
    prepared = prepared_for(ready, workshop, boot).artifacts.cells[cell.id]
    assert isinstance(prepared, Ready)
    assert isinstance(prepared.setup, CallSetup)
    calls = prepared.setup.workload
    assert isinstance(calls, Calls)
    calls.prepare(guest)
    ticks = int(ready.artifacts.kernel.config["CONFIG_HZ"])
    samples = []
    for _ in range(3):
        samples.append(calls.measure_singly(guest, ticks_per_second=ticks, time_limit=120))
        guest.succeed(["sleep", KEY_LIFE])
    young, *old = samples
    for sample in old:
        # What hardly a call does, the kernel may do at another time: a page of a list, once in thousands of calls.
        assert {cost for cost, times in sample.costs.items() if times > OFTEN} == {
            cost for cost, times in young.costs.items() if times > OFTEN
        }
        assert max(sample.costs) < max(young.costs) + NEW_KEY / 2
