# SPDX-License-Identifier: GPL-2.0-only
"""Does every mechanism record the standard kernel events, each hit once, and leave the kernel as it was?"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pytest
from module_maker import ModuleMaker

from orchestrator.arch import Arch
from orchestrator.artifacts.module_source import ModuleSource, render
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.system import measurement as recording_cells
from orchestrator.catalog.probes import RecorderName, recorder_kinds, standard_events
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import cleanup_after
from orchestrator.probes.events import EventKind, read_events
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.final_form import OPTIMISATION
from orchestrator.probes.loading import RefusedError, load
from orchestrator.probes.recorder import (
    MECHANISMS,
    MODULE,
    REPORT,
    STOP,
    TEMPLATE,
    RecorderReport,
    parse_report,
    recorder_values,
    unsupported_reason,
)
from orchestrator.probes.symbols import Symbols

KERNELS = {"lab-i386-smp-markers": "pentium4", "lab-x86_64-smp-markers": "xeon-e5410"}
MECHANISMS_ON: Mapping[str, Sequence[RecorderName]] = {
    "lab-i386-smp-markers": MECHANISMS,
    "lab-x86_64-smp-markers": ("marker", "djprobe"),
}
PREEMPTIBLE = "lab-i386-smp-preempt-markers"
LIVE = {"marker": b"\xb0\x01", "djprobe": b"\xe9", "kprobe-optimized": b"\xe9"}
"""What the bytes begin with while it records; a breakpoint of all others."""
GETPPID = 64
"""On i386. No event is recorded at its function."""
GETEGID = {"i386": 202, "x86_64": 108}
CALLS = 1000
COPIED = 3000
"""Reads and writes of one byte."""
CYCLES_FOR_ONE = 10
"""Each of 64 djprobes waits for every task to have slept: a cycle of them takes a busy guest a quarter of a minute."""
INTERRUPT_LINE = re.compile(r"^ *\d+: +((?:\d+ +)+)", re.MULTILINE)
LIMIT = 600.0
"""Host seconds: a djprobe goes in and out in a tenth of a second, in a guest that is busy or preemptible in seconds."""
BUSY = "while :; do cat /proc/self/maps; dd if=/dev/zero of=/dev/null bs=64 count=50; done >/dev/null 2>&1"


def on(name: str) -> tuple[pytest.MarkDecorator, pytest.MarkDecorator]:
    cpu = KERNELS.get(name, "pentium4")
    return pytest.mark.kernels(name), pytest.mark.guest(kernel=name, cpu=cpu, smp=2, timing="tcg")


EVERYWHERE = [
    pytest.param(mechanism, id=f"{name}-{mechanism}", marks=on(name))
    for name, mechanisms in MECHANISMS_ON.items()
    for mechanism in mechanisms
]


class Recorder:
    """A loaded recorder. Made by ``recording``."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def report(self) -> RecorderReport:
        return parse_report(self._guest.get(REPORT))

    def stop(self) -> RecorderReport:
        """Take everything out, once; what it recorded is final then.

        Places are removed one after the other: to compare events with each other, read the report before.
        """
        self._guest.put(b"1", STOP, time_limit=LIMIT)
        report = self.report()
        assert not report.recording
        assert report.restored
        return report


@contextlib.contextmanager
def recording(guest: Guest, mechanism: RecorderName, module: Module) -> Iterator[Recorder]:
    """Load a recorder, which records from then on; stop and unload it at the end."""
    guest.put(b"1" if mechanism == "kprobe-optimized" else b"0", OPTIMISATION)
    load(guest, module.name, module.file, time_limit=LIMIT)
    recorder = Recorder(guest)
    with cleanup_after(lambda: guest.succeed(["rmmod", module.name], time_limit=LIMIT)):
        assert recorder.report().mechanism == mechanism
        yield recorder
        recorder.stop()


@dataclass(frozen=True)
class Trial:
    """A guest and a recorder for it, not loaded yet."""

    guest: Guest
    arch: Arch
    mechanism: RecorderName
    module: Module

    def call_getegid(self, calls: int = CALLS) -> None:
        """Exactly so often; the program itself makes no such call."""
        self.guest.succeed(["callbench", "-N", str(GETEGID[self.arch]), "-c", str(calls)])


@pytest.fixture
def trial(
    request: pytest.FixtureRequest, shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> Iterator[Trial]:
    mechanism: RecorderName = request.param
    (kind,) = [kind for kind in recorder_kinds().values() if kind.module == mechanism]
    assert unsupported_reason(guest_kernel, kind) is None
    arch = guest_kernel.spec.arch
    mark = shared_guest.console.length()
    values = recorder_values(mechanism, arch, code=guest_kernel.code)
    yield Trial(shared_guest, arch, mechanism, modules.rendered(TEMPLATE, values))
    shared_guest.check_console(mark)
    check_taint(int(shared_guest.get("/proc/sys/kernel/tainted")))
    assert shared_guest.get("/sys/kernel/debug/kprobes/list") == b""
    assert MODULE not in shared_guest.get("/proc/modules").decode()


def counters(guest: Guest) -> Counter[str]:
    """The kernel's own counts of what the events are."""
    stat = guest.get("/proc/stat").decode()
    lines = {key: int(value) for key, value in re.findall(r"^(ctxt|processes) (\d+)", stat, re.MULTILINE)}
    devices = INTERRUPT_LINE.findall(guest.get("/proc/interrupts").decode())
    return Counter(
        sched_switch=lines["ctxt"],
        process_fork=lines["processes"],
        irq_entry=sum(int(count) for line in devices for count in line.split()),
    )


def hits(report: RecorderReport) -> Counter[str]:
    return Counter({count.event: count.recorded + count.missed for count in report.events})


def hits_at(report: RecorderReport, symbol: str) -> int:
    (found,) = [place.recorded + place.missed for place in report.places if place.symbol == symbol]
    return found


def check_missed(report: RecorderReport) -> None:
    (kind,) = [kind for kind in recorder_kinds().values() if kind.module == report.mechanism]
    recording_cells.check_missed(kind, report)


@pytest.mark.parametrize("trial", EVERYWHERE, indirect=True)
def test_calls_reads_and_writes_are_recorded_once_each(trial: Trial) -> None:
    symbol = "__x64_sys_getegid" if trial.arch == "x86_64" else "__ia32_sys_getegid"
    with recording(trial.guest, trial.mechanism, trial.module) as recorder:
        began = recorder.report()
        trial.call_getegid()
        called = recorder.report()
        assert CALLS <= hits(called)["syscall_entry"] - hits(began)["syscall_entry"] < CALLS + 500
        if trial.mechanism != "marker":
            assert hits_at(called, symbol) - hits_at(began, symbol) == CALLS
        trial.guest.succeed(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={COPIED}"])
        report = recorder.report()
        copied = hits(report) - hits(called)
        for event in ("file_read", "file_write"):
            assert COPIED <= copied[event] < COPIED + 100, (event, copied)
        check_missed(report)


@pytest.mark.parametrize("trial", EVERYWHERE, indirect=True)
def test_the_kernel_itself_counts_the_same(trial: Trial) -> None:
    """The number of recorded events lies between the differences of the kernel's inner and outer counter readings."""
    workload = "for i in $(seq 40); do cat /proc/interrupts >/tmp/copy; true | cat; done; sleep 0.2"
    faults = "read line </proc/$$/stat; echo $line"  # the shell's own and those of the processes that it has waited for
    with recording(trial.guest, trial.mechanism, trial.module) as recorder:
        far = counters(trial.guest)
        began = hits(recorder.report())
        near = counters(trial.guest)
        statistics = trial.guest.succeed(["sh", "-c", f"{workload}; {faults}"]).text.split()
        near = counters(trial.guest) - near
        report = recorder.report()
        recorded = hits(report) - began
        far = counters(trial.guest) - far
        assert near["process_fork"] >= 120
        check_missed(report)
    assert near["process_fork"] <= recorded["process_fork"] <= far["process_fork"], (near, recorded, far)
    # A switch is counted before it is made, on each of two CPUs; an edge that comes while another CPU handles one of
    # the same line is handled there and not counted.
    assert near["sched_switch"] - 2 <= recorded["sched_switch"] <= far["sched_switch"] + 2, (near, recorded, far)
    assert near["irq_entry"] <= recorded["irq_entry"] <= far["irq_entry"] * 1.1 + 5, (near, recorded, far)
    # The kernel itself touches a new program's pages, which is no task's fault; and there is who runs the shell.
    faulted = sum(map(int, statistics[9:13]))
    assert 1000 < faulted <= recorded["page_fault"] <= faulted * 1.3 + 300, (faulted, recorded)
    assert recorded["process_exec"] >= 80
    assert recorded["process_exit"] >= 120


@pytest.mark.parametrize("trial", EVERYWHERE, indirect=True)
def test_rings_hold_as_many_events_as_were_counted(trial: Trial) -> None:
    with recording(trial.guest, trial.mechanism, trial.module) as recorder:
        trial.call_getegid(200)
        report = recorder.stop()
        assert report.overwritten == 0
        assert (report.cpus, report.slots, report.event_size) == (2, 4096, 64)
        events = list(read_events(trial.guest, MODULE))
    assert {event.event for event in events} == {EventKind.STANDARD}
    names = list(standard_events())
    assert Counter(names[event.args[0]] for event in events) == +Counter(
        {count.event: count.recorded for count in report.events}
    )
    calls = [event for event in events if names[event.args[0]] == "syscall_entry"]
    assert 200 - report.missed <= sum(event.args[2] == GETEGID[trial.arch] for event in calls) <= 200
    if trial.mechanism != "marker":
        symbol_at = {site.address: site.symbol for site in report.sites}
        counts = Counter(symbol_at[event.args[1]] for event in events)
        assert counts == +Counter({place.symbol: place.recorded for place in report.places})


@pytest.mark.parametrize("trial", EVERYWHERE, indirect=True)
def test_all_bytes_come_back_and_nothing_is_recorded_any_more(trial: Trial) -> None:
    with recording(trial.guest, trial.mechanism, trial.module) as recorder:
        during = recorder.report()
        assert during.recording
        for site in during.sites:
            live = trial.guest.read_memory(site.address, len(site.live))
            assert live == site.live
            assert live.startswith(LIVE.get(trial.mechanism, b"\xcc")), site
            assert live != site.original
        stopped = recorder.stop()
        assert stopped.restored
        for site in stopped.sites:
            assert trial.guest.read_memory(site.address, len(site.original)) == site.original
        trial.call_getegid()
        assert recorder.report() == stopped
        assert recorder.stop() == stopped


@pytest.mark.parametrize("trial", EVERYWHERE, indirect=True)
def test_recorders_come_and_go_under_load(trial: Trial, pytestconfig: pytest.Config) -> None:
    cycles = max(1, pytestconfig.getoption("cycles") // CYCLES_FOR_ONE)
    script = f"for i in 1 2 3; do ({BUSY}) & echo $! >>/tmp/busy; done"
    trial.guest.succeed(["sh", "-c", f"rm -f /tmp/busy; {script}"])
    try:
        for _ in range(cycles):
            with recording(trial.guest, trial.mechanism, trial.module) as recorder:
                trial.guest.succeed(["sleep", "0.1"])
                report = recorder.stop()
                assert {"file_read", "page_fault"} <= {event.event for event in report.events if event.recorded}
            trial.guest.check_console()
    finally:
        trial.guest.succeed(["sh", "-c", "kill $(cat /tmp/busy)"])


@pytest.mark.parametrize("trial", [pytest.param("kprobe", marks=on("lab-i386-smp-markers"))], indirect=True)
def test_an_event_is_left_out_of_all(trial: Trial, modules: ModuleMaker) -> None:
    module = modules.rendered(TEMPLATE, recorder_values("djprobe", trial.arch, ["file_read", "process_fork"]))
    with recording(trial.guest, "djprobe", module) as recorder:
        assert [count.event for count in recorder.report().events] == ["file_read", "process_fork"]
        assert len(recorder.report().places) == 2


@pytest.mark.parametrize(
    ("trial", "symbol", "reason"),
    [
        pytest.param(mechanism, symbol, reason, marks=on("lab-i386-smp-markers"))
        for mechanism, symbol, reason in (
            ("marker", "fs_lost", "no such marker"),
            ("djprobe", "lost_function", "no such symbol"),
            ("djprobe", "__ia32_sys_ioctl", "an indirect jump in the function"),
            ("jprobe", "lost_function", "no such symbol"),
            ("kprobe", "exc_page_fault", "kprobes refuse it"),
            ("kprobe-optimized", "__switch_to", "not optimised: it cannot be, or debug.kprobes-optimization is off"),
        )
    ],
    indirect=["trial"],
)
def test_a_place_that_cannot_be_had_refuses_the_load(
    trial: Trial, modules: ModuleMaker, symbol: str, reason: str
) -> None:
    values = recorder_values(trial.mechanism, trial.arch, ["file_read", "file_write"])
    before = values["symbols"]
    assert isinstance(before, tuple)
    module = modules.rendered(TEMPLATE, {**values, "symbols": (before[0], symbol)})
    with pytest.raises(RefusedError, match=reason), recording(trial.guest, trial.mechanism, module):
        pass
    with recording(trial.guest, trial.mechanism, trial.module):
        pass


@pytest.mark.parametrize("trial", [pytest.param("kprobe", marks=on("lab-i386-smp-markers"))], indirect=True)
def test_breakpoints_that_would_become_jumps_are_refused(trial: Trial, modules: ModuleMaker) -> None:
    module = modules.rendered(TEMPLATE, recorder_values("kprobe-boosted", trial.arch, ["file_read"]))
    trial.guest.put(b"1", "/proc/sys/debug/kprobes-optimization")
    with pytest.raises(RefusedError, match=r"not a breakpoint: debug\.kprobes-optimization is on"):
        load(trial.guest, module.name, module.file)


@pytest.mark.parametrize("trial", [pytest.param("djprobe", marks=on("lab-i386-up"))], indirect=True)
def test_a_hit_that_is_counted_and_not_written_is_found_out(trial: Trial, modules: ModuleMaker) -> None:
    right = render(TEMPLATE, recorder_values("djprobe", trial.arch, ["file_read"]))
    counts = "this_cpu_inc(place_hits[place]);"
    forgets = f"{counts}\n\tif (this_cpu_read(place_hits[place]) % 2)\n\t\treturn;"
    assert right.files["places.h"].count(counts) == 1
    forgetful = {**right.files, "places.h": right.files["places.h"].replace(counts, forgets)}
    module = modules.built(ModuleSource(right.name, forgetful))

    def record() -> None:
        with recording(trial.guest, trial.mechanism, module) as recorder:
            trial.guest.succeed(["dd", "if=/dev/zero", "of=/dev/null", "bs=1", f"count={COPIED}"])
            recorder.stop()

    with pytest.raises(EvidenceError, match=r"^\d+ events were written .* rings, and its places counted \d+ hits$"):
        record()


@pytest.mark.parametrize("trial", [pytest.param("kprobe", marks=on("lab-i386-up"))], indirect=True)
def test_a_hit_whose_handler_is_left_out_fails_a_cell(trial: Trial, modules: ModuleMaker) -> None:
    guest, rogue = trial.guest, modules.rogue("nested_hit")
    called = Symbols.of(guest).address("__ia32_sys_getegid")
    guest.put(rogue.file, "/tmp/nested_hit.ko")
    guest.succeed(["insmod", "/tmp/nested_hit.ko", "symbol=__ia32_sys_getppid", f"called={called:#x}"])
    try:
        module = modules.rendered(TEMPLATE, recorder_values("kprobe", trial.arch, ["syscall_entry"]))
        with recording(guest, "kprobe", module) as recorder:
            trial.call_getegid()
            check_missed(recorder.report())
            guest.succeed(["callbench", "-N", str(GETPPID), "-c", "3"])
            with pytest.raises(EvidenceError, match=r"^the kernel skipped the recorder's handler at 3 of \d+ hits"):
                check_missed(recorder.stop())
    finally:
        guest.succeed(["rmmod", rogue.name])


@pytest.mark.kernels(PREEMPTIBLE)
@pytest.mark.guest(kernel=PREEMPTIBLE, cpu="pentium4", timing="instructions")  # see CYCLES_FOR_ONE: no time passes
@pytest.mark.parametrize("trial", [one for one in MECHANISMS if one != "kprobe-boosted"], indirect=True)
def test_a_preemptible_kernel_has_all_but_the_booster(trial: Trial, guest_kernel: Kernel) -> None:
    assert (
        unsupported_reason(guest_kernel, recorder_kinds()["kprobe-boosted"])
        == "this kernel is preemptible, and such a kernel boosts no kprobe"
    )
    with recording(trial.guest, trial.mechanism, trial.module) as recorder:
        began = recorder.report()
        trial.call_getegid()
        report = recorder.stop()
        assert CALLS <= hits(report)["syscall_entry"] - hits(began)["syscall_entry"] < CALLS + 3000
        check_missed(report)
