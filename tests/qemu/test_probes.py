# SPDX-License-Identifier: GPL-2.0-only
"""Has every kind of probe its mechanism, as seen from inside the guest and from outside?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from elsewhere import ELSEWHERE
from experiment_boot import artifacts_of, boot_of_calls, call_setup, measured_call, prepared_for
from hit_extras import check_extras

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.benchmarks.calls.call_programs import COUNTED_CALLS
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import probes
from orchestrator.experiment.plan import Boot
from orchestrator.probes.arming import module_attached
from orchestrator.probes.evidence import KPROBES_LIST, observe
from orchestrator.probes.point import find_entry
from orchestrator.probes.symbols import ModuleMemory
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

# First byte at the probe point, the kernel's word for it, and where the point is, in the catalogue's order.
FUNCTION, BEHIND_THE_NOP = "{nop}", "{behind}"
EXPECTED = {
    "none": ("", "", BEHIND_THE_NOP),
    "kprobe": ("cc", "", BEHIND_THE_NOP),
    "kprobe-plain": ("cc", "", BEHIND_THE_NOP),
    "kprobe-boosted": ("cc", "", BEHIND_THE_NOP),
    "kprobe-optimized": ("e9", "[OPTIMIZED]", BEHIND_THE_NOP),
    "kprobe-ftrace": ("e8", "[FTRACE]", FUNCTION),
    "kprobe-detour": ("cc", "[OPTIMIZED]", BEHIND_THE_NOP),
    "kprobe-fallback": ("cc", "", BEHIND_THE_NOP),
    "kretprobe": ("cc", "", BEHIND_THE_NOP),
    "kretprobe-boosted": ("cc", "", BEHIND_THE_NOP),
    "kretprobe-optimized": ("e9", "[OPTIMIZED]", BEHIND_THE_NOP),
    "kretprobe-ftrace": ("e8", "[FTRACE]", FUNCTION),
    "jprobe": ("cc", "", BEHIND_THE_NOP),
    "djprobe": ("e9", "", BEHIND_THE_NOP),
    "hook": ("", "", "lab_syscall_hook"),
    "tracepoint": ("e", "[ENABLED]", "trace_sys_enter"),
    "ftrace": ("e8", "[TRACED]", FUNCTION),
    "ftrace-direct": ("e8", "[TRACED]", FUNCTION),
    "fprobe": ("e8", "[TRACED]", FUNCTION),
    "fprobe-exit": ("e8", "[TRACED]", FUNCTION),
    "trace-event": ("e", "[ENABLED]", "trace_sys_enter"),
    "kprobe-event": ("e8", "[FTRACE]", FUNCTION),
    "kprobe-event-optimized": ("e9", "[OPTIMIZED]", BEHIND_THE_NOP),
    "kretprobe-event": ("e8", "[FTRACE]", FUNCTION),
    "fprobe-event": ("e8", "[TRACED]", FUNCTION),
    "fprobe-exit-event": ("e8", "[TRACED]", FUNCTION),
    "tprobe": ("e", "[ENABLED]", "trace_sys_enter"),
    "eprobe": ("e", "[ENABLED]", "trace_sys_enter"),
    "function-graph": ("e8", "[TRACED]", FUNCTION),
    "function-graph-retval": ("e8", "[TRACED]", FUNCTION),
    "function-graph-args": ("e8", "[TRACED]", FUNCTION),
    "bpf-kprobe": ("e8", "[FTRACE]", FUNCTION),
    "bpf-kprobe-interpreted": ("e8", "[FTRACE]", FUNCTION),
    "bpf-kprobe-optimized": ("e9", "[OPTIMIZED]", BEHIND_THE_NOP),
    "bpf-kretprobe": ("e8", "[FTRACE]", FUNCTION),
    "bpf-kprobe-multi": ("e8", "[TRACED]", FUNCTION),
    "bpf-kretprobe-multi": ("e8", "[TRACED]", FUNCTION),
    "bpf-kprobe-session": ("e8", "[TRACED]", FUNCTION),
    "bpf-fentry": ("e8", "[TRACED]", FUNCTION),
    "bpf-fexit": ("e8", "[TRACED]", FUNCTION),
    **dict.fromkeys(
        ("bpf-fsession", "bpf-fentry-multi", "bpf-fexit-multi", "bpf-fsession-multi", "bpf-fmod-ret", "bpf-lsm"),
        ("e", "[TRACED]", FUNCTION),
    ),
    "bpf-fentry-interpreted": ("e8", "[TRACED]", FUNCTION),
    "bpf-tracepoint": ("e", "[ENABLED]", "trace_sys_enter"),
    "bpf-raw-tracepoint": ("e", "[ENABLED]", "trace_sys_enter"),
    "bpf-tp-btf": ("e", "[ENABLED]", "trace_sys_enter"),
}
DIRECT_CALLS = {name for name, kind in probes().items() if kind.mechanism == "direct"}
FPROBES = {name for name, kind in probes().items() if kind.fprobe}
# What Debian's kernels cannot have: no LKST hook, on 6.1 no fprobes, without KALLSYMS_ALL (i386) no way to hold the
# optimiser back, and no direct calls from traced functions on 32 bits.
NOT_HERE = {
    "debian-686": {"hook", "kprobe-detour", "function-graph", *FPROBES, *DIRECT_CALLS},
    "debian-amd64": {"hook", *FPROBES},
    "debian-amd64@6.12": {"hook", "function-graph-retval"},
}


def why_not(kernel: str, probe: str) -> str | None:
    """The beginning of the reason where Debian's kernel does not support a kind at the system call's function."""
    kind = probes()[probe]
    if kind.functions:
        return "the lab attaches it to functions "
    if kind.since is not None and not kind.since.is_in(kernels()[kernel].version):
        return f"Linux has this since {kind.since}; the kernel is "
    return "this kernel was built without CONFIG_" if probe in NOT_HERE[kernel] else None


# By what happens in a hit, the cheapest first.
CHEAPEST_FIRST = [
    ["none", "djprobe", "kprobe-optimized", "kprobe-ftrace", "kprobe-boosted", "kprobe", "kretprobe", "jprobe"],
    ["kprobe-boosted", "kprobe-plain", "kprobe"],
    ["kprobe-optimized", "kretprobe-optimized", "kretprobe-ftrace", "kretprobe-boosted", "kretprobe"],
    ["tracepoint", "bpf-raw-tracepoint", "trace-event", "bpf-tracepoint"],
    ["kprobe-ftrace", "bpf-kprobe", "kprobe-event", "bpf-kprobe-interpreted", "kretprobe-event"],
]
NOTES = {
    "kprobe": "instructions of a hit are the aggregator that the kernel puts before a kprobe that could become a jump",
    "kprobe-plain": "without the aggregator that the kernel puts before a kprobe that could become a jump",
    "kprobe-boosted": "boosted by the module's own booster: this kernel is preemptible, and such a kernel has none",
    "kprobe-fallback": "single-stepped because of a post-handler; without one it could be optimised",
    "jprobe": "instructions of a hit are the aggregator that the kernel puts before a kprobe that could become a jump",
    "kretprobe": "the return is hooked by the module: register_kretprobe() refuses a place after the function "
    "tracer's nop",
    "kretprobe-boosted": "the return is hooked by the module: register_kretprobe() accepts no module's booster",
}
# The tracer's nop, and behind it; on Linux 6.12 both are behind an endbr.
PLACES = {
    "debian-686": ("__ia32_sys_gettimeofday", "__ia32_sys_gettimeofday+0x5"),
    "debian-amd64": ("__x64_sys_gettimeofday", "__x64_sys_gettimeofday+0x5"),
    "debian-amd64@6.12": ("__x64_sys_gettimeofday+0x4", "__x64_sys_gettimeofday+0x9"),
}
MACHINES = [
    pytest.param("debian-686", "pentium4", marks=[pytest.mark.guest(timing="instructions"), ELSEWHERE]),
    pytest.param("debian-amd64", "xeon-e5410", marks=pytest.mark.guest(kernel="debian-amd64", timing="instructions")),
    pytest.param(
        "debian-amd64@6.12",
        "xeon-e5410",
        marks=[
            pytest.mark.guest(kernel="debian-amd64@6.12", timing="instructions"),
            pytest.mark.nightly("every kind on a newer release, which has to be fetched"),
        ],
    ),
]


def all_probes(kernel: str, cpu: str) -> Boot:
    return boot_of_calls(
        kernels=[kernel],
        machines=[{"cpu": cpu}],
        probes=[name for name, kind in probes().items() if kind.site != "program"],
        benchmark={"name": "gtodbench", "calls": 100, "repeats": 2},
    )


def test_no_kind_is_forgotten_here() -> None:
    """Those in a program are in ``test_uprobes.py``."""
    assert [name for name, kind in probes().items() if kind.site != "program"] == list(EXPECTED)


@pytest.mark.parametrize(("kernel", "cpu"), MACHINES)
def test_every_kind_proves_itself_in_one_guest(
    ready: ReadyGuest, workshop: BuildContext, kernel: str, cpu: str
) -> None:
    boot = all_probes(kernel, cpu)
    ready = prepared_for(ready, workshop, boot)
    assert replace(ready.artifacts.machine, counter=None) == ready.guest.machine
    records = {cell.probe: measured_call(ready, cell) for cell in boot.cells}
    for probe, record in records.items():
        reason = why_not(kernel, probe)
        if reason is None:
            _check(probe, PLACES[kernel], record)
        else:
            assert (record.status, (record.reason or "").startswith(reason)) == ("unsupported", True), record.reason
    for order in CHEAPEST_FIRST:
        assert sorted(order, key=lambda probe: records[probe].value or 0.0) == order
    check_extras(records)
    assert ready.guest.get(KPROBES_LIST) == b""
    assert "lab_" not in ready.guest.get("/proc/modules").decode()


def _check(probe: str, places: tuple[str, str], record: CellRecord) -> None:
    first, flag, place = EXPECTED[probe]
    evidence = record.evidence
    assert record.status == "ok", record.reason
    assert evidence is not None
    assert evidence.mechanism == probes()[probe].mechanism
    assert evidence.symbol == place.format(nop=places[0], behind=places[1])
    assert evidence.flag == flag
    assert evidence.restored
    assert (evidence.detour is not None) == (probe == "djprobe")
    assert len(set(record.samples)) == 1
    assert len(record.samples) == 2
    assert NOTES.get(probe, "") in " ".join(record.notes)
    if probe == "none":
        assert evidence.probe_bytes == evidence.original_bytes
        return
    assert evidence.probe_bytes.startswith(first)
    assert evidence.probe_bytes != evidence.original_bytes
    assert evidence.hits == evidence.calls == COUNTED_CALLS
    assert evidence.int3 == COUNTED_CALLS * (probes()[probe].int3_per_hit or 0)


@pytest.mark.parametrize(("kernel", "cpu"), MACHINES)
def test_a_djprobe_is_no_optimised_kprobe(ready: ReadyGuest, workshop: BuildContext, kernel: str, cpu: str) -> None:
    """Its jump works with the kernel's optimiser switched off, and leads into the module's own memory."""
    guest = ready.guest
    boot = all_probes(kernel, cpu)
    (cell,) = (cell for cell in boot.cells if cell.probe == "djprobe")
    setup, module = call_setup(artifacts_of(workshop, boot), cell)
    point = find_entry(guest, ready.symbols, setup.symbol, setup.offset)
    with module_attached(guest, probes()["djprobe"], module, point, ready.symbols) as attachment:
        assert guest.get("/proc/sys/debug/kprobes-optimization") == b"0\n"
        seen = attachment.wait_until_armed()
        assert seen.live[0] == 0xE9
        assert seen.jump_target is not None
        landing = point.address + seen.jump_target
        memory = ModuleMemory.of(guest, module.name)
        assert memory.start <= landing < memory.end
        detour = attachment.detour(seen)
        assert detour is not None
        start, end = (int(edge, 16) for edge in detour.split("-"))
        assert start <= landing < end
        # The instructions that the jump has replaced live on in the detour.
        replaced = int(attachment.parameter("replaced"))
        assert replaced >= 5
        assert point.original[:replaced] in guest.read_memory(start, end - start)
        attachment.set_handler("count")
        guest.succeed(["gtodbench", "-c", "77"])
        assert attachment.hits() == 77
    assert observe(guest, point).live == point.original
