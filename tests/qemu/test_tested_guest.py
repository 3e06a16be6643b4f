# SPDX-License-Identifier: GPL-2.0-only
"""Do the plugin's fixtures and the verbs of its guests do what a tester means by them?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import (
    BuildError,
    CommandFailed,
    GuestError,
    GuestHang,
    UnsupportedError,
    UsageError,
)
from orchestrator.guest.guest import State
from orchestrator.guest.kernel_reports import Trouble
from orchestrator.library.tested_guest import KernelModules, TestedGuest
from orchestrator.probes.loading import RefusedError, load
from orchestrator.probes.symbols import ModuleMemory
from orchestrator.pytest_plugin.guest_factory import GuestFactory
from orchestrator.pytest_plugin.probe_cost import ProbeCosts

pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg", memory="128M")

GREETING = {"CONFIG_GREETING": "m"}


def greet(kmod: KernelModules, **parameters: str | int) -> None:
    """Load both modules of the folder."""
    kmod("modules/greeting", parameters, name="greeting", values=GREETING)


# --- modules --------------------------------------------------------------------------------------


def test_a_folder_is_built_and_what_a_module_needs_is_loaded_before_it(
    shared_guest: TestedGuest, kmod: KernelModules
) -> None:
    module = kmod("modules/greeting", {"whom": "the world", "times": 3}, name="greeting", values=GREETING)
    assert shared_guest.wait_for_line("hello").endswith("greeting: hello the world, 3 times")
    assert (module.name, module.needed) == ("greeting", ("greeting_words",))
    assert module.parameter("whom") == "the world"
    module.set_parameter("times", 4)
    assert module.parameter("times") == "4"
    shared_guest.unload(module)
    assert "greeting: goodbye the world" in shared_guest.wait_for_line("goodbye")
    assert not ModuleMemory.all_of(shared_guest).keys() & {"greeting", "greeting_words"}
    assert "greeting: goodbye the world" in shared_guest.dmesg()


def test_what_a_test_leaves_loaded(kmod: KernelModules, shared_guest: TestedGuest) -> None:
    greet(kmod)
    assert ModuleMemory.all_of(shared_guest).keys() >= {"greeting", "greeting_words"}


def test_is_unloaded_before_the_next(shared_guest: TestedGuest) -> None:
    assert not ModuleMemory.all_of(shared_guest).keys() & {"greeting", "greeting_words"}


def test_a_c_file_a_template_and_a_built_module(kmod: KernelModules, tmp_path: Path) -> None:
    module = kmod("modules/idle.c")
    assert module.name == "idle"
    template = tmp_path / "set-by-template.c.j2"
    template.write_text(
        "#include <linux/module.h>\nstatic int value = {{ value }};\nmodule_param(value, int, 0444);\n"
        'MODULE_LICENSE("GPL");\n'
    )
    module = kmod(template, values={"value": 42})
    assert (module.name, module.parameter("value")) == ("set_by_template", "42")


def test_wrong_module_is_refused_in_one_sentence(
    shared_guest: TestedGuest, kmod: KernelModules, tmp_path: Path
) -> None:
    (tmp_path / "unfinished.c").write_text("#include <linux/module.h>\nint here(void) { return there; }\n")
    with pytest.raises(UsageError, match=r"this file does not exist"):
        kmod("modules/nowhere.c")
    with pytest.raises(BuildError, match=r"/unfinished\.c:2: module unfinished does not build"):
        kmod(tmp_path / "unfinished.c")
    with pytest.raises(UsageError, match=r"builds 2 modules: greeting, greeting_words"):
        kmod("modules/greeting", values=GREETING)
    with pytest.raises(UsageError, match=r"unknown module 'greting'.*did you mean 'greeting'"):
        kmod("modules/greeting", name="greting", values=GREETING)
    with pytest.raises(UsageError, match=r"that is not a variable for make"):
        kmod("modules/greeting", values={"CONFIG_GREETING": "$(shell id)"})
    with pytest.raises(UsageError, match=r"unknown parameter 'times of'; .*did you mean 'times'"):
        kmod("modules/greeting", {"times of": 1}, name="greeting", values=GREETING)
    with pytest.raises(RefusedError, match=r"hello nobody, -1 times"):
        greet(kmod, times=-1)
    with pytest.raises(CommandFailed, match="rmmod nothing"):
        shared_guest.unload("nothing")


@pytest.mark.guest(kernel="debian-686", timing="tcg", memory="256M")
def test_a_module_of_another_kernel_is_not_supported(
    guest: TestedGuest, kmod: KernelModules, late_oops: Path, tmp_path: Path
) -> None:
    with pytest.raises(
        UnsupportedError, match=r"late_oops\.ko was built for kernel .*, and this one is 6\.1\.0-"
    ) as other_info:
        kmod(late_oops)
    assert other_info.value.hint.endswith("build module ./late_oops.c --kernel debian-686 --out .")
    # The kernel names neither the module nor the release where it is of another processor.
    content = late_oops.read_bytes()
    (tmp_path / "late_oops.ko").write_bytes(content[:18] + b"\x3e\0" + content[20:])
    with pytest.raises(
        RefusedError, match=r": it was built for \S+-lab .*686, and the guest runs 6\.1\.\S+ i686\n"
    ) as refused:
        load(guest, "late_oops", tmp_path / "late_oops.ko")
    assert [line.partition("] ")[2] for line in refused.value.detail] == ["Invalid architecture in ELF header: 62"]


# --- the kernel's reports -------------------------------------------------------------------------


def test_a_line_that_does_not_come_is_a_hang(shared_guest: TestedGuest) -> None:
    shared_guest.put(b"<1>first\n", "/dev/kmsg")
    shared_guest.put(b"<1>second\n", "/dev/kmsg")
    assert shared_guest.wait_for_line("s.con").endswith("second")
    with pytest.raises(GuestHang, match=r"no line with 'first', and nothing printed for 0\.2 s"):
        shared_guest.wait_for_line("first", time_limit=0.2)
    with pytest.raises(UsageError, match="is not a regular expression"):
        shared_guest.wait_for_line("(")


def test_an_oops_that_is_expected(guest: TestedGuest, late_oops: Path) -> None:
    with guest.expect_oops("NULL pointer dereference"), guest.expect_oops("WARNING: CPU"):
        guest.load(late_oops)
    assert [report.trouble for report in guest.console.reports()] == [Trouble.WARNING, Trouble.OOPS]
    guest.check_kernel()
    with (
        pytest.raises(GuestError, match="the guest's kernel has reported nothing with 'soft lockup'"),
        guest.expect_oops("soft lockup", time_limit=0.2),
    ):
        guest.succeed(["true"])


def test_a_panic_that_is_expected_and_a_guest_that_boots_again(guest: TestedGuest) -> None:
    guest.put(b"", "/tmp/trace")
    with guest.expect_panic("sysrq triggered crash"):
        guest.succeed(["sh", "-c", "echo c >/proc/sysrq-trigger"])
    assert guest.state is State.GONE
    guest.reboot()
    guest.fail(["test", "-e", "/tmp/trace"])
    with pytest.raises(GuestError, match="the guest's kernel has not panicked"), guest.expect_panic(time_limit=0.2):
        guest.succeed(["true"])
    with guest.expect_oops("not expected for ever"):
        guest.put(b"<1>BUG: expected once is not expected for ever\n", "/dev/kmsg")


# --- several guests, and numbers ------------------------------------------------------------------


def test_guests_on_a_network_of_their_own(guest_factory: GuestFactory) -> None:
    first, second = guest_factory(), guest_factory(cpu="athlon")
    assert (first.address, second.address) == ("192.168.77.1", "192.168.77.2")
    assert second.machine.cpu.name == "athlon"
    first.succeed(["ping", "-c", "2", str(second.address)])
    first.fail(["ping", "-c", "1", "-W", "1", "192.168.77.3"])
    second.reboot()
    first.succeed(["ping", "-c", "1", str(second.address)])
    with pytest.raises(UsageError, match="run on the plain clock"):
        guest_factory(timing="instructions")
    with pytest.raises(UsageError, match="unknown argument 'cpus'"):
        guest_factory(cpus=2)


@pytest.mark.guest(timing="instructions")
def test_a_probes_cost_is_what_an_experiment_measures(probe_cost: ProbeCosts) -> None:
    cost = probe_cost("djprobe")
    assert (cost.value, cost.overhead, cost.unit) == (399, 39, "instructions")
    assert (cost.evidence.mechanism, cost.evidence.hits) == ("jmp", cost.evidence.calls)
    assert probe_cost("kprobe").value == 889
    with pytest.raises(UsageError, match=r"probes\.1: found 'kprob'"):
        probe_cost("kprob")
    with pytest.raises(UnsupportedError):
        probe_cost("hook")


def test_instructions_are_counted_on_the_exact_clock_only(shared_guest: TestedGuest, probe_cost: ProbeCosts) -> None:
    with pytest.raises(UsageError, match="instructions are counted on the exact clock"):
        probe_cost("djprobe")
