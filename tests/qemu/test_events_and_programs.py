# SPDX-License-Identifier: GPL-2.0-only
"""Does an event of tracefs or a BPF program that goes wrong in silence fail its cell, and leave nothing behind?"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from djprobe_trial import insert
from gettimeofday import gettimeofday
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.arming import module_attached
from orchestrator.probes.bpf_attachment import bpf_attached
from orchestrator.probes.bpf_program import compile_programs
from orchestrator.probes.event_attachment import event_attached
from orchestrator.probes.events import read_events
from orchestrator.probes.evidence import observe
from orchestrator.probes.point import ProbePoint, find_entry
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tracefs import INSTANCE
from orchestrator.run.ready_guest import ReadyGuest

PROBED = "__x64_sys_gettimeofday"
ENABLE = f"{INSTANCE}/events/lab/probe/enable"
MORE_THAN_FIT = 60_000
"""Calls: the ring has room for 58,254 events of 64 bytes and a header."""

pytestmark = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions")


@pytest.fixture
def entry(ready: ReadyGuest) -> ProbePoint:
    """The function tracer's nop."""
    return find_entry(ready.guest, ready.symbols, PROBED, 0)


@pytest.fixture
def behind(ready: ReadyGuest) -> ProbePoint:
    """The first instruction behind it."""
    return find_entry(ready.guest, ready.symbols, PROBED, 5)


def call(guest: Guest, calls: int) -> None:
    gettimeofday("x86_64", calls=calls).call(guest, calls, caller=None, time_limit=60)


def test_an_event_that_is_enabled_softly_only_is_found(ready: ReadyGuest, entry: ProbePoint) -> None:
    guest = ready.guest
    with event_attached(guest, probes()["kprobe-event"], entry, ready.symbols) as attachment:
        attachment.wait_until_armed()
        guest.put(b"hist:keys=common_pid", f"{INSTANCE}/events/lab/probe/trigger")
        guest.put(b"0", ENABLE)
        with pytest.raises(EvidenceError, match=r"^the kernel shows the event at .* as '0\*', not '1'"):
            attachment.observe()


def test_an_event_that_was_disabled_is_found(ready: ReadyGuest, entry: ProbePoint) -> None:
    with event_attached(ready.guest, probes()["kprobe-event"], entry, ready.symbols) as attachment:
        ready.guest.put(b"0", ENABLE)
        with pytest.raises(EvidenceError, match=r"^the kernel shows the event at .* as '0', not '1'"):
            attachment.wait_until_armed()


def test_a_kprobe_on_the_tracer_is_no_jump_and_the_reverse(
    ready: ReadyGuest, entry: ProbePoint, behind: ProbePoint
) -> None:
    for kind, wrong in (("kprobe-event-optimized", entry), ("kprobe-event", behind)):
        with (
            pytest.raises(EvidenceError, match=r"^after enabling, .* is not armed by "),
            event_attached(ready.guest, probes()[kind], wrong, ready.symbols) as event,
        ):
            event.wait_until_armed()
    for point in (entry, behind):
        assert observe(ready.guest, point).live == point.original


@pytest.mark.nightly("the same of BPF programs: three seconds")
def test_a_program_on_the_tracer_is_no_jump_and_the_reverse(
    ready: ReadyGuest, entry: ProbePoint, behind: ProbePoint, workshop: BuildContext
) -> None:
    tool = bpf_tool(workshop, "x86_64")
    for kind, wrong in (("bpf-kprobe-optimized", entry), ("bpf-kprobe", behind)):
        with (
            pytest.raises(EvidenceError, match=r"^after attaching, .* is not armed by "),
            bpf_attached(ready.guest, probes()[kind], tool, wrong, ready.symbols) as program,
        ):
            program.wait_until_armed()
    for point in (entry, behind):
        assert observe(ready.guest, point).live == point.original


def test_events_that_the_buffer_lost_are_found(ready: ReadyGuest, entry: ProbePoint) -> None:
    with event_attached(ready.guest, probes()["kprobe-event"], entry, ready.symbols) as attachment:
        ready.guest.put(b"4", f"{INSTANCE}/buffer_size_kb")
        attachment.set_handler("record")
        calls = gettimeofday("x86_64", calls=2000)
        called = calls.call(ready.guest, 2000, caller=None, time_limit=60)
        attachment.set_handler("noop")
        with pytest.raises(EvidenceError, match=r"^the buffer of CPU 0 has lost events"):
            attachment.recorded(called, ready.symbols, None)


def test_a_program_that_is_interpreted_is_not_compiled(
    ready: ReadyGuest, entry: ProbePoint, workshop: BuildContext
) -> None:
    tool = bpf_tool(workshop, "x86_64")
    with bpf_attached(ready.guest, probes()["bpf-kprobe"], tool, entry, ready.symbols) as attachment:
        attachment.wait_until_armed()
        compile_programs(ready.guest, on=False)
        with pytest.raises(EvidenceError, match=r"is interpreted, and for bpf-kprobe it must not be$"):
            attachment.set_handler("count")


@pytest.fixture
def no_setting(ready: ReadyGuest) -> Iterator[None]:
    """A guest as of a kernel without CONFIG_NET, which has no setting of the BPF compiler and compiles all programs."""
    ready.guest.succeed(["mount", "-t", "tmpfs", "none", "/proc/sys/net"])
    yield
    ready.guest.succeed(["umount", "/proc/sys/net"])


@pytest.mark.usefixtures("no_setting")
@pytest.mark.parametrize("name", ["bpf-kprobe", "bpf-fentry"])
def test_programs_are_measured_where_the_compiler_has_no_setting(
    ready: ReadyGuest, entry: ProbePoint, workshop: BuildContext, name: str
) -> None:
    tool = bpf_tool(workshop, "x86_64")
    with bpf_attached(ready.guest, probes()[name], tool, entry, ready.symbols) as attachment:
        attachment.set_handler("count")
        attachment.wait_until_armed()
        attachment.observe()


@pytest.mark.usefixtures("no_setting")
def test_an_interpreter_that_cannot_be_chosen_is_unsupported(
    ready: ReadyGuest, entry: ProbePoint, workshop: BuildContext
) -> None:
    kind, tool = probes()["bpf-fentry-interpreted"], bpf_tool(workshop, "x86_64")
    with (
        pytest.raises(
            UnsupportedError, match=r"this kernel has no setting to interpret BPF programs: .* \(CONFIG_NET\)$"
        ),
        bpf_attached(ready.guest, kind, tool, entry, ready.symbols),
    ):
        pass


def test_a_ring_that_is_full_is_found(ready: ReadyGuest, entry: ProbePoint, workshop: BuildContext) -> None:
    tool = bpf_tool(workshop, "x86_64")
    with bpf_attached(ready.guest, probes()["bpf-fentry"], tool, entry, ready.symbols) as attachment:
        attachment.set_handler("record")
        attachment.wait_until_armed()
        call(ready.guest, MORE_THAN_FIT)
        with pytest.raises(EvidenceError, match=r"^the ring of the BPF program had no room for \d{4} events$"):
            attachment.observe()


def test_a_program_that_another_replaced_has_not_run(
    ready: ReadyGuest, entry: ProbePoint, workshop: BuildContext
) -> None:
    """The witness sees hits that the program itself does not."""
    tool = bpf_tool(workshop, "x86_64")
    with bpf_attached(ready.guest, probes()["bpf-kprobe"], tool, entry, ready.symbols) as attachment:
        attachment.wait_until_armed()
        caller = attachment.separate_caller()
        caller.__enter__()
        attachment.set_handler("count")
        ready.guest.succeed(["rm", "/sys/fs/bpf/lab-a/link"])
        call(ready.guest, 100)
        with pytest.raises(EvidenceError, match=r"^the BPF program ran \d+ times, and the witness beside it \d+"):
            attachment.set_handler("noop")
        with pytest.raises(EvidenceError, match=r"^after attaching, the kernel lists no probe at"):
            caller.__exit__(None, None, None)


@pytest.mark.parametrize("kind", ["ftrace", pytest.param("ftrace-direct", marks=pytest.mark.nightly("the sibling"))])
def test_the_stack_of_a_hit_in_the_unwinder_is_not_recorded_in_turn(
    ready: ReadyGuest, modules: ModuleMaker, kind: str
) -> None:
    """Otherwise it is the last thing that the kernel does."""
    unwinder = find_entry(ready.guest, ready.symbols, "unwind_next_frame", 0)
    module = modules.probe(probes()[kind].template or "", unwinder.symbol, 0)
    with module_attached(ready.guest, probes()[kind], module, unwinder, ready.symbols) as attachment:
        attachment.set_handler("stack")
        ready.guest.succeed(["cat", "/proc/self/stack"])
        attachment.set_handler("noop")
        assert 0 < read_events(ready.guest, module.name).written < 100
    ready.guest.check_console()


def test_a_function_without_type_information_is_refused_with_the_guest_s_words(
    ready: ReadyGuest, workshop: BuildContext
) -> None:
    tool = bpf_tool(workshop, "x86_64")
    point = find_entry(ready.guest, ready.symbols, "entry_SYSCALL_64", 0)
    with (
        pytest.raises(EvidenceError, match=r"no type information about entry_SYSCALL_64"),
        bpf_attached(ready.guest, probes()["bpf-fentry"], tool, point, ready.symbols),
    ):
        pass


@pytest.mark.parametrize(
    "kinds",
    [
        [("kprobe-event", 0), ("bpf-kprobe-optimized", 5), ("bpf-fentry", 0)],
        pytest.param(
            [("kretprobe-event", 0), ("kprobe-event-optimized", 5), ("bpf-kprobe", 0), ("bpf-kretprobe", 0)],
            marks=pytest.mark.nightly("the other kinds of probe: two seconds"),
        ),
    ],
)
def test_the_kernel_s_function_is_probed_where_a_module_has_another_of_its_name(
    ready: ReadyGuest, workshop: BuildContext, modules: ModuleMaker, kinds: list[tuple[str, int]]
) -> None:
    guest, tool = ready.guest, bpf_tool(workshop, "x86_64")
    insert(guest, modules.rogue("namesake"))
    symbols = Symbols.of(guest)
    assert symbols.address(PROBED) == ready.symbols.address(PROBED)
    for kind, offset in kinds:
        point = find_entry(guest, symbols, PROBED, offset)
        assert point.shared_with == ["namesake"]
        attached = (
            event_attached(guest, probes()[kind], point, symbols)
            if probes()[kind].program is None
            else bpf_attached(guest, probes()[kind], tool, point, symbols)
        )
        with attached as attachment:
            attachment.wait_until_armed()
            with attachment.separate_caller():
                attachment.set_handler("count")
                called = gettimeofday("x86_64", calls=100).call(guest, 100, caller=None, time_limit=60)
                attachment.set_handler("noop")
            assert attachment.counts(called)[0] == called.calls == 100
    guest.succeed(["rmmod", "namesake"])
