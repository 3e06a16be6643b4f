# SPDX-License-Identifier: GPL-2.0-only
"""Are probes at any tracepoint proved, and found out where they are not alone or not there?"""

from __future__ import annotations

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.function_entry import tracer_place
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.catalog.probes import ProbeKind, probe_kind
from orchestrator.errors import EvidenceError
from orchestrator.probes.bpf_attachment import bpf_attached
from orchestrator.probes.event_attachment import event_attached
from orchestrator.probes.point import ProbePoint, find_entry
from orchestrator.probes.tracefs import TRACEFS
from orchestrator.run.ready_guest import ReadyGuest

EVERYONES_EVENT = f"{TRACEFS}/events/raw_syscalls/sys_enter/enable"


@pytest.fixture
def point(ready: ReadyGuest) -> ProbePoint:
    """Some function's entry: these kinds are elsewhere."""
    return find_entry(
        ready.guest, ready.symbols, "vfs_read", tracer_place(ready.artifacts.kernel.entry_offset("vfs_read"))
    )


@pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions")
def test_a_second_probe_at_the_tracepoint_is_found(
    ready: ReadyGuest, point: ProbePoint, workshop: BuildContext
) -> None:
    event = probe_kind("trace-event")
    with event_attached(ready.guest, event, point, ready.symbols) as attachment:
        attachment.wait_until_armed()
        ready.guest.put(b"1", EVERYONES_EVENT)
        with pytest.raises(EvidenceError, match=r"calls (trace_event_raw_event_sys_enter), \1, not one function"):
            attachment.wait_until_armed()
        ready.guest.put(b"0", EVERYONES_EVENT)
        attachment.wait_until_armed()
    ready.guest.put(b"1", EVERYONES_EVENT)
    program = probe_kind("bpf-raw-tracepoint")
    with (
        pytest.raises(EvidenceError, match=r"^there is no nop at 0x[0-9a-f]+, where the tracepoint's static branch"),
        bpf_attached(ready.guest, program, bpf_tool(workshop, "x86_64"), point, ready.symbols),
    ):
        pass
    ready.guest.put(b"0", EVERYONES_EVENT)


@pytest.mark.parametrize(
    ("probe", "said", "hint"),
    [
        ("trace-event.sched.sched_swich", "no tracepoint sched_swich", "sched_switch"),
        ("trace-event.shed.sched_switch", "no event shed.sched_switch", "sched.sched_switch"),
        ("trace-event.syscalls.sys_enter_reed", "no event syscalls.sys_enter_reed", "syscalls.sys_enter_read"),
    ],
)
@pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions")
def test_a_name_that_the_kernel_has_not_is_an_error(
    ready: ReadyGuest, point: ProbePoint, probe: str, said: str, hint: str
) -> None:
    with pytest.raises(EvidenceError, match=f"^the guest's kernel has {said}\n") as refused:
        _enter(ready, probe_kind(probe), point)
    assert refused.value.hint == f"did you mean {hint}?"
    _enter(ready, probe_kind("trace-event.sched.sched_switch"), point)


def _enter(ready: ReadyGuest, kind: ProbeKind, point: ProbePoint) -> None:
    with event_attached(ready.guest, kind, point, ready.symbols) as attachment:
        attachment.wait_until_armed()
