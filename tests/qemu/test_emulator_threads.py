# SPDX-License-Identifier: GPL-2.0-only
"""Why do a guest's CPUs share one thread of QEMU?

With a thread for each of them (MTTCG) QEMU 7.2 goes on running stale translations of code that another CPU has patched.
The kernel's own kprobes suffer from it: hits are lost, and a CPU that traps for ever on a breakpoint that has long gone
hangs the guest. No djprobe is in this test. QEMU 7.2.22 failed within four cycles in each of three guests, 10.0.13 in
the first cycle of one, and in two others not once in 60 cycles.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from djprobe_trial import Trial, insert
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import GuestError
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.run.machines import machine_for

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-smp")]

CYCLES_WITH_ONE, CYCLES_WITH_MANY = 5, 15
CALLS = 200
_PATIENCE = 15.0
_SCRIPTS = Path(__file__).with_name("guest")


def test_kprobes_work_with_one_thread_for_all_cpus(workshop: BuildContext, tmp_path: Path) -> None:
    assert trouble(workshop, tmp_path, CYCLES_WITH_ONE) is None


@pytest.mark.nightly("a guest that hangs keeps two processors busy until its limit; that one thread works is daily")
def test_kprobes_do_not_work_with_a_thread_for_each_cpu(
    workshop: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.guest.qemu_command.accelerator_option", lambda machine: "tcg,thread=multi")
    found = trouble(workshop, tmp_path, CYCLES_WITH_MANY)
    if found is None:
        pytest.skip(f"this QEMU kept up with patched code for {CYCLES_WITH_MANY} cycles on {os.cpu_count()} host CPUs")
    print(found)


def trouble(context: BuildContext, directory: Path, cycles: int) -> str | None:
    """What goes wrong first while a kprobe comes and goes under load on two CPUs; None where nothing does."""
    kernel = ready_kernel(context, kernels()["lab-i386-smp"])
    module = ModuleMaker(context, kernel).rogue("kprobe_trial")
    machine = machine_for(context, kernel, GuestSpec(cpu="pentium4", smp=2, timing="tcg"))
    with Guest(machine, directory) as guest:
        for script in ("exact_calls.sh", "busy_calls.sh"):
            guest.put(_SCRIPTS / script, f"/tmp/{script}", mode=0o755)
        guest.succeed(["cp", "/bin/gtodbench", "/tmp/exact"])
        guest.succeed(["/tmp/busy_calls.sh"])
        for cycle in range(cycles):
            try:
                hits = hits_of_one_cycle(guest, module)
            except GuestError as error:
                return f"cycle {cycle}: {error.what}"
            if hits != [CALLS, CALLS]:
                return f"cycle {cycle}: of {CALLS} calls on each CPU, {hits} were hits"
    return None


def hits_of_one_cycle(guest: Guest, module: Module) -> list[int]:
    """The kprobe's hits by the processes that make ``CALLS`` calls on each CPU."""
    insert(guest, module, ["symbol=__ia32_sys_gettimeofday"])
    guest.succeed(["/tmp/exact_calls.sh", str(CALLS)], time_limit=_PATIENCE)
    hits = Trial(guest, module.name).counts("exact")
    guest.succeed(["rmmod", module.name], time_limit=_PATIENCE)
    guest.check_console()
    return hits
