# SPDX-License-Identifier: GPL-2.0-only
"""Has every kernel of the lab's own each kind of probe that it can have, in full, and a reason for each that it cannot?

Kernels that are not in the cache are skipped. What Debian's have is in ``test_probes.py``.
"""

from __future__ import annotations

import pytest
from experiment_boot import artifacts_of, boot_of_calls, call_setup, measured_call, prepared_for
from hit_extras import check_extras, extras_of

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.calls.call_programs import COUNTED_CALLS
from orchestrator.benchmarks.calls.preparation import CallSetup
from orchestrator.catalog.kernels import KernelSpec, kernels
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.experiment.plan import Boot
from orchestrator.guest.guest import Guest
from orchestrator.probes.arming import module_attached
from orchestrator.probes.evidence import KPROBES_LIST, check_same
from orchestrator.probes.point import ProbePoint, find_entry, find_hook, find_static_branch
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

ON_THE_TRACER = {
    "kprobe-ftrace": "CONFIG_KPROBES_ON_FTRACE",
    "kretprobe-ftrace": "CONFIG_KPROBES_ON_FTRACE",
    "ftrace": "CONFIG_DYNAMIC_FTRACE",
    "ftrace-direct": "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
}
FOR_64_BITS = {name for name, kind in probes().items() if "CONFIG_X86_64" in kind.needs}
PREEMPTIBLE = "lab-i386-smp-preempt"
HOOKED = "lab-i386-up-hook"
FOR_MANY_PROBES = ("-hash6", "-hash12", "-kpcache", "-kpcache-published")
"""The kernels that differ in how a kprobe is found only, which ``test_kprobe_cache.py`` is about."""
WITH_KUNIT = "-kunit"
"""KUnit's tests taint the kernel in the boot (TAINT_TEST), and nothing is measured on a tainted one."""


DAILY = ("lab-i386-up", HOOKED, "lab-x86_64-smp-preempt", "lab-x86_64-smp-ibt-ftrace")
"""Between them they have every mechanism, on both architectures."""


def on(name: str) -> tuple[pytest.MarkDecorator, ...]:
    marks = (pytest.mark.kernels(name), pytest.mark.guest(kernel=name, timing="instructions"))
    return marks if name in DAILY else (*marks, pytest.mark.nightly("every kind on a variant of a kernel"))


LAB_KERNELS = [
    pytest.param(spec, id=name, marks=on(name))
    for name, spec in kernels().items()
    if spec.source and not name.removesuffix("-ftrace").endswith((*FOR_MANY_PROBES, WITH_KUNIT))
]


def all_probes(kernel: KernelSpec) -> Boot:
    return boot_of_calls(
        kernels=[kernel.name],
        machines=[{"cpu": "xeon-e5410" if kernel.needs_long_mode else "pentium4"}],
        probes=[name for name, kind in probes().items() if kind.site != "program"],
        handlers=["noop", "record"],
        benchmark={"name": "gtodbench", "calls": 200, "repeats": 2},
    )


@pytest.mark.parametrize("kernel", LAB_KERNELS)
def test_every_kind_with_and_without_recording(ready: ReadyGuest, workshop: BuildContext, kernel: KernelSpec) -> None:
    boot = all_probes(kernel)
    ready = prepared_for(ready, workshop, boot)
    records = {(cell.probe, cell.handler): measured_call(ready, cell) for cell in boot.cells}
    for (probe, handler), record in records.items():
        reason = why_not(kernel.name, probe)
        if reason is not None:
            assert (record.status, reason in (record.reason or "")) == ("unsupported", True), (probe, record.reason)
        elif probe != "none":
            check_proof(kernel, probe, handler, record)
            plain, recording = records[probe, "noop"].value, records[probe, "record"].value
            assert plain is not None
            assert recording is not None
            assert plain < recording
    for handler in ("noop", "record"):
        check_extras({probe: record for (probe, of), record in records.items() if of == handler})
    assert ready.guest.get(KPROBES_LIST) == b""
    assert "lab_" not in ready.guest.get("/proc/modules").decode()
    ready.guest.check_console()


def why_not(kernel: str, probe: str) -> str | None:
    """A part of the reason where the kernel, by its name, does not support a kind."""
    variant, is_traced, kind = kernel.partition("@")[0], has_tracer(kernel), probes()[probe]
    if kind.functions:
        return "the lab attaches it to functions "
    since = kind.since
    if since is not None and not since.is_in(kernels()[kernel].version):
        return f"Linux has this since {since}"
    if probe in ON_THE_TRACER and not is_traced:
        return f"built without {ON_THE_TRACER[probe]}"
    is_modern = kind.fprobe or kind.event is not None or kind.program is not None
    if is_modern and not variant.endswith("-bpf"):
        return "built without CONFIG_"
    if probe in FOR_64_BITS and "-i386-" in kernel:
        return "built without CONFIG_X86_64"
    if probe == "hook" and not variant.endswith("-hook"):
        return "built without CONFIG_LAB_SYSCALL_HOOK"
    if probe == "kretprobe" and not is_traced and "-preempt" not in kernel:
        return "this kernel always boosts a kretprobe; take a preemptible one, such as lab-"
    return None


def has_tracer(kernel: str) -> bool:
    """Whether the kernel, by its name, has a nop of the function tracer's in each function."""
    return kernel.partition("@")[0].endswith(("-ftrace", "-bpf"))


def check_proof(kernel: KernelSpec, probe: str, handler: str, record: CellRecord) -> None:
    kind, evidence = probes()[probe], record.evidence
    assert record.status == "ok", (probe, record.reason)
    assert evidence is not None
    assert evidence.mechanism == kind.mechanism
    assert evidence.hits == evidence.calls == COUNTED_CALLS
    assert evidence.int3 == COUNTED_CALLS * (kind.int3_per_hit or 0), probe
    assert evidence.recorded == (COUNTED_CALLS * kind.runs if handler == "record" else None)
    assert evidence.restored
    assert evidence.probe_bytes != evidence.original_bytes
    if kind.site == "kprobe":
        # Nothing comes before the function tracer's nop but an endbr.
        nop = 5 if has_tracer(kernel.name) else 0
        place = kernel.entry_offset - nop if kind.at == "entry" else kernel.entry_offset
        assert evidence.symbol.endswith(f"_gettimeofday+{place:#x}" if place else "_gettimeofday")
    if kind.template in ("kprobe", "kretprobe"):
        # "3 times bigger; 145 bytes more on x86-32", by the documents; today's templates are of the same order.
        plain, extra = record.parameters["probe_bytes_plain"], record.parameters["probe_bytes_extra"]
        assert isinstance(plain, int)
        assert isinstance(extra, int)
        assert 64 < plain < extra + 64 < 1024
    assert len(set(record.samples)) == 1


@pytest.mark.kernels(PREEMPTIBLE)
@pytest.mark.guest(kernel=PREEMPTIBLE, timing="instructions")
def test_a_plain_kprobe_is_what_the_kernel_has_where_no_jump_fits(ready: ReadyGuest, workshop: BuildContext) -> None:
    """Four bytes into getppid() of this kernel there is a call, which no jump may cover: kprobes add no aggregator."""
    boot = boot_of_calls(
        kernels=[PREEMPTIBLE],
        machines=[{"cpu": "pentium4"}],
        probes=["none", "kprobe", "kprobe-plain"],
        benchmark={"name": "syscall", "call": "getppid", "calls": 200, "repeats": 2},
    )
    ready = prepared_for(ready, workshop, boot)
    _, kernels_own, plain = (measured_call(ready, cell) for cell in boot.cells)
    assert kernels_own.status == plain.status == "ok", (kernels_own.reason, plain.reason)
    assert extras_of(kernels_own) == extras_of(plain) == {}
    assert "aggregator" not in " ".join((*kernels_own.notes, *plain.notes))
    assert kernels_own.value == plain.value


@pytest.mark.kernels(PREEMPTIBLE)
@pytest.mark.guest(kernel=PREEMPTIBLE, timing="instructions", fresh=True)
def test_the_optimiser_is_held_back_on_a_busy_guest(ready: ReadyGuest, workshop: BuildContext) -> None:
    """Where the loading task can be preempted, a wait of its may take longer than the optimiser."""
    guest, kind = ready.guest, probes()["kprobe-detour"]
    setup, module = setup_of(workshop, PREEMPTIBLE, kind.name)
    point = find_entry(guest, ready.symbols, setup.symbol, setup.offset)
    keep_busy(guest)
    for _ in range(10):
        with module_attached(guest, kind, module, point, ready.symbols) as attachment:
            assert attachment.wait_until_armed().live[0] == 0xCC


def keep_busy(guest: Guest) -> None:
    """Three programs that call the probed function without end."""
    guest.succeed(["sh", "-c", "for i in 1 2 3; do (while :; do gtodbench -c 20000; done) > /dev/null 2>&1 & done"])


@pytest.mark.kernels(HOOKED)
@pytest.mark.guest(kernel=HOOKED, timing="instructions")
@pytest.mark.parametrize("probe", ["hook", "tracepoint"])
def test_a_hook_or_tracepoint_in_use_is_found_out(ready: ReadyGuest, workshop: BuildContext, probe: str) -> None:
    """Somebody else's handler would be timed as well."""
    guest, kind = ready.guest, probes()[probe]
    setup, module = setup_of(workshop, HOOKED, probe)
    point = find_entry(guest, ready.symbols, setup.symbol, setup.offset)
    complaint = {
        "hook": r"^the hook at 0x[0-9a-f]+ is in use: it holds ",
        "tracepoint": r"^there is no nop at 0x[0-9a-f]+, where the tracepoint's static branch",
    }[probe]

    def find(guest: Guest, address: int) -> ProbePoint:
        return find_hook(guest, address) if probe == "hook" else find_static_branch(guest, address, "sys_enter")

    with module_attached(guest, kind, module, point, ready.symbols) as attachment:
        attachment.wait_until_armed()
        place = attachment.point
        with pytest.raises(EvidenceError, match=complaint):
            find(guest, place.address)
    assert find(guest, place.address) == place


@pytest.mark.kernels(HOOKED)
@pytest.mark.guest(kernel=HOOKED, timing="instructions")
@pytest.mark.parametrize("probe", ["hook", "tracepoint"])
def test_a_probe_that_is_disarmed_behind_the_lab_s_back_is_found_out(
    ready: ReadyGuest, workshop: BuildContext, probe: str
) -> None:
    guest, kind = ready.guest, probes()[probe]
    setup, module = setup_of(workshop, HOOKED, probe)
    point = find_entry(guest, ready.symbols, setup.symbol, setup.offset)
    with module_attached(guest, kind, module, point, ready.symbols) as attachment:
        armed = attachment.wait_until_armed()
        guest.put(b"0", f"/sys/module/{module.name}/parameters/armed")
        with pytest.raises(EvidenceError, match=f"^meanwhile, {attachment.point.name} changed from "):
            check_same(kind, armed, attachment.observe(), attachment.point, "meanwhile")
        with pytest.raises(EvidenceError, match=r"^after loading, "):
            attachment.wait_until_armed()


def setup_of(context: BuildContext, kernel: str, probe: str) -> tuple[CallSetup, Module]:
    boot = all_probes(kernels()[kernel])
    (cell,) = (cell for cell in boot.cells if (cell.probe, cell.handler) == (probe, "noop"))
    return call_setup(artifacts_of(context, boot), cell)
