# SPDX-License-Identifier: GPL-2.0-only
"""Does a guest that dies, hangs or fails its test leave a vmcore that drgn opens, with the kernel's own symbols?"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debug_info import kernel_debug_info, module_debug_info
from orchestrator.artifacts.modules import Module, user_modules
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.catalog.kernels import kernel as kernel_spec

drgn = pytest.importorskip("drgn", reason="drgn opens the vmcores: pip install drgn")
linux = pytest.importorskip("drgn.helpers.linux", reason="its helpers for Linux")

pytest_plugins = ["pytester"]
pytestmark = [pytest.mark.qemu, pytest.mark.nightly("a gigabyte of debug information, once")]

ANSWERS = """
#include <linux/module.h>

static int lab_answer = 42;
module_param(lab_answer, int, 0644);

int answer(void);
int answer(void)
{
    return lab_answer;
}
MODULE_LICENSE("GPL");
"""

HANGING = """
#include <linux/irqflags.h>
#include <linux/module.h>

static int __init hangs_init(void)
{
    local_irq_disable();
    for (;;)
        cpu_relax();
    return 0;
}
module_init(hangs_init);
MODULE_LICENSE("GPL");
"""


@pytest.fixture(params=["debian-amd64", "debian-amd64@7.3", "debian-686"])
def kernel(request: pytest.FixtureRequest, workshop: BuildContext) -> Kernel:
    return ready_kernel(workshop, kernel_spec(request.param))


def opened(workshop: BuildContext, kernel: Kernel, core: Path, modules: Sequence[Module]) -> Any:
    program = drgn.Program()
    program.set_core_dump(str(core))
    program.load_debug_info([str(kernel_debug_info(workshop, kernel))])
    named = {one.name: one for one in modules}
    for module, _ in program.loaded_modules():
        if module.name in named:  # debug information changes the build id that a loaded module has
            module.try_file(module_debug_info(workshop, kernel, named[module.name]), force=True)
    return program


def test_a_panicked_guest(workshop: BuildContext, kernel: Kernel, tmp_path: Path) -> None:
    source, core = tmp_path / "answers.c", tmp_path / "panic.vmcore"
    source.write_text(ANSWERS)
    kernel_debug_info(workshop, kernel)  # at hand for the printed line
    done = CommandLine(tmp_path).run(
        *("exec", "--kernel", kernel.spec.name, "--module", source, "--param", "lab_answer=1234", "--core", core),
        *("--", "sh", "-c", "echo c >/proc/sysrq-trigger"),
    )
    assert done.returncode == 1, done.stderr
    assert "sysrq triggered crash" in done.stderr
    (line,) = re.findall(r"^vmcore: \S+\nto open it: (.+)$", done.stderr, re.MULTILINE)
    pasted = subprocess.run(
        ["sh", "-c", f"{line} -e 'print(prog[\"init_uts_ns\"].name.release.string_().decode())'"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (pasted.returncode, pasted.stdout) == (0, f"{kernel.release}\n"), pasted.stderr
    program = opened(workshop, kernel, core, user_modules(workshop, kernel, source, name=None, values={}))
    assert program["init_uts_ns"].name.release.string_().decode() == kernel.release
    tasks = {task.comm.string_() for task in linux.for_each_task(program)}
    assert {b"agent", b"kthreadd"} <= tasks
    assert "answers" in {module.name.string_().decode() for module in linux.for_each_module(program)}
    assert program["lab_answer"].value_() == 1234
    if kernel.spec.arch == "x86_64":  # drgn unwinds no stacks of i386
        crashed = next(task for task in linux.for_each_task(program) if task.comm.string_() == b"sh")
        names = [frame.name for frame in program.stack_trace(linux.find_task(program, crashed.pid))]
        assert "sysrq_handle_crash" in names


def test_guests_of_failed_tests(pytester: pytest.Pytester, workshop: BuildContext) -> None:
    pytester.makepyfile(
        """
        import pytest

        from orchestrator.errors import GuestHang

        pytestmark = pytest.mark.guest(kernel="debian-amd64", timing="tcg")

        def test_expects_a_panic(guest):
            with guest.expect_panic():
                guest.run(["sh", "-c", "echo c >/proc/sysrq-trigger"])

        def test_panics(guest):
            guest.run(["sh", "-c", "echo c >/proc/sysrq-trigger"])

        def test_lives(guest):
            assert False
        """
    )
    result = pytester.runpytest_inprocess("--qemu", "--qemu-keep", f"--basetemp={pytester.path / 'kept'}")
    result.assert_outcomes(passed=1, failed=2)
    cores = {core.parent.name.rstrip("0"): core for core in pytester.path.glob("kept/**/*.vmcore")}
    assert set(cores) == {"test_panics", "test_lives"}
    kernel = ready_kernel(workshop, kernel_spec("debian-amd64"))
    for core in cores.values():
        assert opened(workshop, kernel, core, [])["init_uts_ns"].name.release.string_().decode() == kernel.release


def test_a_hanging_guest(workshop: BuildContext, tmp_path: Path) -> None:
    """The vmcore is of the hanging guest, and not of the panic after the NMI that the lab sends then."""
    core = tmp_path / "hang.vmcore"
    module = tmp_path / "hangs.c"
    module.write_text(HANGING)
    done = CommandLine(tmp_path).run(
        *("exec", "--kernel", "debian-amd64", "--accel", "tcg", "--timeout", "10", "--module", module, "--core", core),
        *("--", "true"),
    )
    assert done.returncode == 1, done.stderr
    kernel = ready_kernel(workshop, kernel_spec("debian-amd64"))
    program = opened(workshop, kernel, core, [])
    assert b"insmod" in {task.comm.string_() for task in linux.for_each_task(program)}
    assert program["panic_cpu"].counter.value_() == -1  # it has not panicked yet
