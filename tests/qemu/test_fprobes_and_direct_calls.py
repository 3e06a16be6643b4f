# SPDX-License-Identifier: GPL-2.0-only
"""Does an fprobe or a direct call that goes wrong in silence fail its cell? Each way is provoked in a real guest."""

from __future__ import annotations

import pytest
from function_tracer import traced_function
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.function_entry import tracer_place
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.arming import module_attached
from orchestrator.probes.bpf_attachment import bpf_attached
from orchestrator.probes.evidence import check_same, check_untouched, observe
from orchestrator.probes.loading import RefusedError, load, unload
from orchestrator.probes.point import ProbePoint, find_entry
from orchestrator.run.ready_guest import ReadyGuest

PROBED, UNCALLED = "__x64_sys_gettimeofday", "__x64_sys_sethostname"
SLEEP = "hrtimer_nanosleep"
HOOKED_RETURNS = 64
"""MAX_ACTIVE of kmods/templates/fprobe.c.j2."""
WITH_FPROBES = [
    pytest.param(
        name,
        marks=[
            pytest.mark.kernels(name),
            pytest.mark.guest(kernel=name, cpu="xeon-e5410", timing="instructions"),
            *([] if name == "lab-x86_64-smp-bpf" else [pytest.mark.nightly("fprobes on another kernel")]),
        ],
    )
    for name in ("lab-x86_64-smp-bpf", "lab-x86_64-smp-bpf@6.12", "lab-i386-smp-bpf", "lab-i386-smp-bpf@6.12")
]
on_debian = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions")


def entry(ready: ReadyGuest, symbol: str) -> ProbePoint:
    """The function tracer's nop."""
    return find_entry(ready.guest, ready.symbols, symbol, tracer_place(ready.artifacts.kernel.entry_offset(symbol)))


def armed_by(modules: ModuleMaker, kind: str, point: ProbePoint) -> Module:
    return modules.probe(probes()[kind].template or "", point.symbol, point.offset)


def sleep(guest: Guest, processes: int) -> None:
    """So many at once: the second does not pass before all of them have begun, on the exact clock."""
    guest.succeed(["sh", "-c", f"i=0; while [ $i -lt {processes} ]; do sleep 1 & i=$((i + 1)); done; wait"])


@pytest.mark.parametrize("kernel", WITH_FPROBES)
@pytest.mark.parametrize("probe", ["fprobe", "fprobe-exit"])
def test_another_user_of_an_fprobe_s_function_is_found(
    ready: ReadyGuest, modules: ModuleMaker, kernel: str, probe: str
) -> None:
    arch = ready.artifacts.kernel.spec.arch
    probed, uncalled = (name.replace("x64", "ia32") if arch == "i386" else name for name in (PROBED, UNCALLED))
    point, kind = entry(ready, probed), probes()[probe]
    with module_attached(ready.guest, kind, armed_by(modules, probe, point), point, ready.symbols) as attachment:
        alone = attachment.wait_until_armed()
        assert alone.called == ("ftrace_ops_list_func" if arch == "i386" else "fprobe_handler")
        with traced_function(ready.guest, probed):
            with pytest.raises(EvidenceError, match=f"^after loading, the function tracer has 2 users of {probed}"):
                attachment.wait_until_armed()
            with pytest.raises(EvidenceError, match=f"tracer's users of {probed} became 2, from 1$"):
                check_same(kind, alone, attachment.observe(), point, "meanwhile")
        with traced_function(ready.guest, uncalled):
            if arch == "i386":
                # All users share one trampoline there, and two of them are called through the whole list.
                with pytest.raises(EvidenceError, match=r"tracer calls ftrace_ops_list_func at .*, not fprobe_handler"):
                    attachment.wait_until_armed()
            else:
                check_same(kind, alone, attachment.wait_until_armed(), point, "meanwhile")
        assert attachment.wait_until_armed() == alone


@pytest.mark.parametrize("kernel", WITH_FPROBES)
def test_returns_that_an_fprobe_had_no_hook_for_are_found(ready: ReadyGuest, modules: ModuleMaker, kernel: str) -> None:
    point = entry(ready, SLEEP)
    module = armed_by(modules, "fprobe-exit", point)
    with module_attached(ready.guest, probes()["fprobe-exit"], module, point, ready.symbols) as attachment:
        attachment.wait_until_armed()
        attachment.set_handler("count")
        sleep(ready.guest, HOOKED_RETURNS)
        assert attachment.hits() == HOOKED_RETURNS
        sleep(ready.guest, HOOKED_RETURNS + 6)
        with pytest.raises(EvidenceError, match=r"^the kernel skipped the handler 6 times$"):
            attachment.hits()
    ready.guest.check_console()


@on_debian
def test_another_user_of_a_function_that_calls_directly_is_found(ready: ReadyGuest, modules: ModuleMaker) -> None:
    """The call then leads through the tracer's own code, to both."""
    point, kind = entry(ready, PROBED), probes()["ftrace-direct"]
    with module_attached(ready.guest, kind, armed_by(modules, kind.name, point), point, ready.symbols) as attachment:
        alone = attachment.wait_until_armed()
        assert alone.called == "trampoline_noop [lab_ftrace_direct]"
        with traced_function(ready.guest, PROBED):
            with pytest.raises(EvidenceError, match=f"^after loading, the function tracer has 2 users of {PROBED}"):
                attachment.wait_until_armed()
            assert ready.symbols.names(int(attachment.observe().called or "", 16)) == {"ftrace_regs_caller"}
        with traced_function(ready.guest, UNCALLED):
            check_same(kind, alone, attachment.wait_until_armed(), point, "meanwhile")


@on_debian
def test_trampoline_of_another_module_is_found(ready: ReadyGuest, workshop: BuildContext, modules: ModuleMaker) -> None:
    """The first byte and the tracer's list are the same: only where the call leads tells them apart."""
    guest, point, kind = ready.guest, entry(ready, PROBED), probes()["ftrace-direct"]
    module, tool = armed_by(modules, kind.name, point), bpf_tool(workshop, "x86_64")
    with module_attached(guest, kind, module, point, ready.symbols) as attachment:
        armed = attachment.wait_until_armed()
        unload(guest, module.name)
        with bpf_attached(guest, probes()["bpf-fentry"], tool, point, ready.symbols) as program:
            program.wait_until_armed()
            other_observation = attachment.observe()
            assert (other_observation.live[0], other_observation.flags) == (armed.live[0], armed.flags)
            with pytest.raises(EvidenceError, match=r"came to call a trampoline of BPF's at .* longer trampoline_noop"):
                check_same(kind, armed, other_observation, point, "meanwhile")
            with pytest.raises(RefusedError, match=r": the function calls another trampoline already$"):
                load(guest, module.name, module.file, parameters=module.parameters)
        load(guest, module.name, module.file, parameters=module.parameters)
        assert attachment.wait_until_armed().called == armed.called
    check_untouched(point, observe(guest, point, "ftrace"), "at the end")
