# SPDX-License-Identifier: GPL-2.0-only
"""Are the events and system calls that are read from a kernel's image those that its guest lists?"""

from __future__ import annotations

import pytest
from elsewhere import ELSEWHERE

from orchestrator.artifacts.kernel_events import events, system_call_names, tracepoints
from orchestrator.run.ready_guest import ReadyGuest

GUESTS = [
    pytest.param(kernel, marks=[pytest.mark.guest(kernel=kernel, cpu="xeon-e5410", timing="instructions"), *marks])
    for kernel, marks in (("debian-amd64", []), ("debian-amd64@7.3", [ELSEWHERE]))
]


@pytest.mark.parametrize("kernel", GUESTS)
def test_the_events_of_an_image_are_those_of_its_guest(ready: ReadyGuest, kernel: str) -> None:
    code = ready.artifacts.kernel.code
    assert code is not None
    assert code.address("vfs_read") is not None, kernel
    in_image = set(events(code))
    listed = set(ready.guest.get("/sys/kernel/tracing/available_events").decode().split())
    assert len(listed) > 1000
    assert listed <= in_image
    # A kernel for 64 bits lists no events of the 32-bit system calls that its image has.
    assert {event.partition(":")[0] for event in in_image - listed} <= {"syscalls"}
    calls = {event.removeprefix("syscalls:sys_enter_") for event in listed if event.startswith("syscalls:sys_enter_")}
    assert calls <= set(system_call_names(code, "x86_64"))
    assert {"sched_switch", "sys_enter", "block_rq_issue"} <= set(tracepoints(code))
