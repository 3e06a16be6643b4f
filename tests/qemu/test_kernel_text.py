# SPDX-License-Identifier: GPL-2.0-only
"""Is it found out what a cell leaves in the kernel's text, wherever that is?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from elsewhere import ELSEWHERE
from experiment_boot import boot_of
from task_worker import do_task

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.registry import kinds
from orchestrator.errors import EvidenceError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.guest.guest import Guest
from orchestrator.probes.kernel_text import KernelText
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import BootTask
from orchestrator.run.boot_events import CellRecorded, Event, GuestBooted
from orchestrator.run.ready_guest import ReadyGuest

MODULES = Path(__file__).with_name("modules")
KPROBE_EVENTS = "/sys/kernel/tracing/kprobe_events"
STATISTICS = "/proc/sys/kernel/sched_schedstats"
LEFT = "^the cell left the kernel's text changed\n"

DEBIAN = pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="instructions")


@pytest.mark.qemu
def test_a_byte_left_in_the_kernels_text_fails_its_cell_alone(workshop: BuildContext, tmp_path: Path) -> None:
    """The patched function is another one than the probed: nothing else of the proof looks at it."""
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: own\nkernels: [lab-i386-up]\nmachines: [{cpu: pentium4}]\n"
        f"probes: [none, {MODULES}/text_patcher.c.j2, kprobe]\n"
        "benchmark: {name: gtodbench, calls: 100, repeats: 2}\n"
    )
    boot = boot_of(file)
    task = BootTask(kinds().named(boot.kind), boot, boot.cells, tmp_path / "boot1")
    events: list[Event] = []
    do_task(task, workshop, events.append)
    records: list[CellRecord] = [event.record for event in events if isinstance(event, CellRecorded)]
    assert [record.status for record in records] == ["ok", "failed", "ok"]
    assert re.search(r"^    0x[0-9a-f]+ __ia32_sys_sethostname\+0x1: ", records[1].reason or "", re.M)
    assert len([event for event in events if isinstance(event, GuestBooted)]) == 2
    for record in (records[0], records[2]):
        assert record.text is not None
        assert record.text.modules == ()
        assert record.text.size > 1 << 20
        # When enough randomness was gathered is a matter of the host's timing.
        assert {branch.key for branch in record.text.switched} <= {"crng_is_ready"}


@pytest.mark.qemu
def test_an_int3_that_unattended_work_leaves_fails_its_cell(workshop: BuildContext, tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "name: flood\nkernels: [lab-i386-up]\nmachines: [{cpu: pentium4}]\n"
        f"probes: [none, {MODULES}/uncalled_patch.c]\n"
        "benchmark: {name: ping-flood, packets: 100, repeats: 1}\n"
    )
    boots = plan(load_experiment(file, kinds())).boots
    (boot,) = (boot for boot in boots if boot.cells[0].probe != "none")  # test_system_experiment.py has the others
    events: list[Event] = []
    do_task(BootTask(kinds().named(boot.kind), boot, boot.cells, tmp_path / "boot"), workshop, events.append)
    (record,) = (event.record for event in events if isinstance(event, CellRecorded))
    assert record.status == "failed"
    place = r"^    0x[0-9a-f]+ __ia32_sys_sethostname\+0x1: [0-9a-f]{2} became cc$"
    assert re.search(place, record.reason or "", re.M)


@contextmanager
def switched(guest: Guest, file: str, value: bytes) -> Iterator[None]:
    before = guest.get(file)
    guest.put(value, file)
    try:
        yield
    finally:
        guest.put(before, file)


@contextmanager
def kprobe_at(guest: Guest, place: str) -> Iterator[None]:
    """A probe by the kernel's own tracing, at ``symbol`` or ``module:symbol``."""
    guest.put(f"p:stranger {place}".encode(), KPROBE_EVENTS)
    try:
        with switched(guest, "/sys/kernel/tracing/events/kprobes/stranger/enable", b"1"):
            yield
    finally:
        guest.put(b"", KPROBE_EVENTS)


def left_behind(text: KernelText) -> str:
    """What the error says of the places."""
    with pytest.raises(EvidenceError, match=LEFT) as left:
        text.unchanged()
    return "\n".join(left.value.detail)


@DEBIAN
@pytest.mark.parametrize("place", ["__ia32_sys_sethostname", "virtio_console:port_fops_poll"])
def test_a_probe_left_elsewhere_is_found_in_the_kernel_and_in_its_modules(ready: ReadyGuest, place: str) -> None:
    text = KernelText(ready.guest, ready.symbols)
    with kprobe_at(ready.guest, place):
        assert re.search(rf"^0x[0-9a-f]+ {place.rpartition(':')[2]}(\+0x5)?: .* became ", left_behind(text), re.M)
    text.unchanged()


@DEBIAN
def test_a_tracepoint_left_enabled_is_found(ready: ReadyGuest) -> None:
    text = KernelText(ready.guest, ready.symbols)
    with switched(ready.guest, "/sys/kernel/tracing/events/raw_syscalls/sys_enter/enable", b"1"):
        assert "(tracepoint sys_enter)" in left_behind(text)
    text.unchanged()


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param("debian-686", marks=DEBIAN),
        pytest.param("debian-amd64", marks=[pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410"), ELSEWHERE]),
    ],
)
def test_a_static_branch_that_the_kernel_switches_is_in_the_evidence(ready: ReadyGuest, kernel: str) -> None:
    assert ready.artifacts.kernel.spec.name == kernel
    # The kernel switches a key of its own when it has gathered enough randomness, whenever that is: it now has.
    ready.guest.put(bytes(64), "/tmp/seed")
    ready.guest.succeed(["seedrandom", "/tmp/seed"])
    ready.guest.succeed(["sleep", "0.5"])
    text = KernelText(ready.guest, ready.symbols)
    before = text.unchanged()
    assert "virtio_console" in before.modules
    with switched(ready.guest, STATISTICS, b"1"):
        on = text.unchanged()
        assert len(on.switched) > 10
        assert len({branch.key for branch in on.switched}) == 1
        assert "try_to_wake_up" in {branch.place.partition("+")[0] for branch in on.switched}
        assert on.digest != before.digest
        # What one cell's evidence has is no difference for the next.
        assert text.unchanged().switched == ()
    off = text.unchanged()
    assert off.digest == before.digest
    assert [(place.place, place.after, place.before) for place in on.switched] == [
        (place.place, place.before, place.after) for place in off.switched
    ]
