# SPDX-License-Identifier: GPL-2.0-only
"""What does the plugin show and keep of a failed test, and what of it reaches other tests?"""

from __future__ import annotations

import shlex
from pathlib import Path
from xml.etree import ElementTree

import pytest
from command_line import qemus_in

pytest_plugins = ["pytester"]

MARK = """
import os, signal
import pytest
from orchestrator.errors import GuestExit

pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="tcg", memory="128M")
"""


def properties_of(report: Path, test: str) -> dict[str, str]:
    """The properties of a test in a JUnit XML."""
    cases = {case.get("name"): case for case in ElementTree.parse(report).iter("testcase")}
    return {str(element.get("name")): str(element.get("value")) for element in cases[test].iter("property")}


@pytest.mark.qemu
def test_a_failed_test_shows_its_own_lines_and_keeps_what_repeats_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        MARK
        + """
def check_something(guest):
    guest.succeed(["sh", "-c", "echo '<1>lab: on the console' >/dev/kmsg; echo printed; echo wrong >&2; exit 3"])

def test_it(guest):
    check_something(guest)
"""
    )
    result = pytester.runpytest_inprocess("--qemu", "--qemu-timing=tcg", "--junitxml=report.xml")
    result.assert_outcomes(failed=1)
    shown = result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            ">       check_something(guest)",
            ">       guest.succeed(*",
            "E       *CommandFailed: `sh -c *` ended with status 3 in the guest",
            "E           printed",
            "E           wrong",
            "*Last steps of *lab.log*",
            "*Console during the test, *",
            "*lab: on the console",
        ]
    )
    assert "orchestrator/guest" not in shown.replace("orchestrator/guest.", "")
    properties = properties_of(pytester.path / "report.xml", "test_it")
    command = (
        "pytest --qemu --qemu-timing=tcg test_a_failed_test_shows_its_own_lines_and_keeps_what_repeats_it.py::test_it"
    )
    assert properties["qemu_reproduce"] == command
    assert "lab: on the console" in Path(properties["qemu_console"]).read_text()
    assert shlex.split(Path(properties["qemu_arguments"]).read_text())[0] == "qemu-system-x86_64"
    assert "FAILED" in Path(properties["qemu_log"]).read_text()

    pytester.runpytest_inprocess(*shlex.split(command)[1:]).assert_outcomes(failed=1)


@pytest.mark.qemu
def test_trouble_fails_the_test_in_which_it_happens_and_no_other(pytester: pytest.Pytester, late_oops: Path) -> None:
    pytester.makepyfile(
        MARK
        + f"""
def oops(guest):
    with guest.expect_oops("end trace"):
        pass

def test_taint(guest):
    guest.put(b"512", "/proc/sys/kernel/tainted")
def test_taint_of_a_module(guest, kmod):
    kmod({str(late_oops)!r})
    guest.wait_for_line("Oops: ")
@pytest.mark.guest(allow_oops=["WARNING: CPU", "NULL pointer dereference"])
def test_expected(guest, kmod):
    kmod({str(late_oops)!r})
    guest.wait_for_line("Oops: ")
def test_quiet(guest): guest.succeed(["true"])
def test_death(guest):
    os.kill(guest.pid, signal.SIGKILL)
    guest.succeed(["true"])
def test_after_death(guest): guest.succeed(["true"])
def test_unseen_death(guest):
    os.kill(guest.pid, signal.SIGKILL)
def test_expected_death(guest):
    os.kill(guest.pid, signal.SIGKILL)
    with pytest.raises(GuestExit):
        guest.succeed(["true"])
def test_shared_and_tainted(shared_guest):
    shared_guest.put(b"128", "/proc/sys/kernel/tainted")
def test_shared_afterwards(shared_guest):
    assert shared_guest.get("/proc/sys/kernel/tainted") == b"0\\n"
"""
    )
    result = pytester.runpytest_inprocess("--qemu", "-v")
    result.assert_outcomes(passed=5, failed=5)
    result.stdout.fnmatch_lines(
        [
            "*::test_expected PASSED*",
            "GuestOops: the guest's kernel has become tainted: a warning",
            "GuestOops: the guest's kernel reported trouble (warning in late_oops_init *, oops in die *)",
            "E       *GuestExit: *QEMU ended (signal 9) while running true",
            "GuestExit: *QEMU ended (signal 9) while *",
            "GuestOops: the guest's kernel has become tainted: an oops or a BUG",
        ]
    )
    assert qemus_in(pytester.path) == []


LISTS = """
import pytest

@pytest.mark.guest(kernel=["lab-i386-up", "debian-686"], cpu="athlon", data=[], memory=["64M", "128M"])
def test_each(guest): assert guest.machine.cpu.name == "athlon"
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.guest(kernel="lab-i386-up"))])
@pytest.mark.guest(timing="tcg")
def test_settings(shared_guest, number): assert shared_guest.machine.cpu.name == "pentium-m"
@pytest.mark.guest(timing="instructions", fresh=True)
def test_fresh(guest): pass
@pytest.mark.guest(fresh=True)
def test_fresh_and_shared(shared_guest): assert shared_guest.restored_from is None
def test_network(guest_factory): pass
def test_kernel_alone(guest_kernel): pass
def test_modules(kmod): pass
def test_none(): pass
"""


@pytest.mark.qemu
def test_lists_make_tests_and_settings_are_defaults(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_lists=LISTS)
    pytester.makeini("[pytest]\nqemu_cpu = pentium-m\nqemu_kernel = debian-686\n")
    listed = pytester.runpytest_subprocess("--qemu-list", "--qemu-kernel=lab-i386-up", "-q", "-n", "1")
    assert listed.ret == 0
    listed.stdout.fnmatch_lines(
        [
            "tests  kernel       cpu        smp  memory  timing        image  channel  start",
            "1      lab-i386-up  athlon     1    64M     auto          -      framed   clean",
            "1      lab-i386-up  athlon     1    128M    auto          -      framed   clean",
            "1      debian-686   athlon     1    64M     auto          -      framed   clean",
            "1      debian-686   athlon     1    128M    auto          -      framed   clean",
            "2      lab-i386-up  pentium-m  1    256M    tcg           -      framed   shared",
            "1      lab-i386-up  pentium-m  1    256M    instructions  -      framed   booted",
            "1      lab-i386-up  pentium-m  1    256M    auto          -      framed   shared, booted",
            "1      lab-i386-up  pentium-m  1    256M    auto          -      framed   several, booted",
            "1      lab-i386-up  pentium-m  1    256M    auto          -      framed   if a fixture asks",
            "1      lab-i386-up  pentium-m  1    256M    auto          -      framed   clean",
        ],
        consecutive=True,
    )
    collected = pytester.runpytest_inprocess("--collect-only", "-q")
    names = ["lab-i386-up-64M", "lab-i386-up-128M", "debian-686-64M", "debian-686-128M"]
    collected.stdout.fnmatch_lines([f"test_lists.py::test_each[[]{name}]" for name in names], consecutive=True)
    chosen = pytester.runpytest_inprocess(
        "--qemu", "--qemu-kernel=lab-i386-up", "-k", "lab-i386-up-64M or test_settings or fresh_and", "-rA"
    )
    chosen.assert_outcomes(passed=4)
    wrong = pytester.runpytest_inprocess("--qemu", "--qemu-kernel=lab-i386-pu", "-k", "fresh")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["*::test_fresh: mark guest: *unknown kernel 'lab-i386-pu'*"])


@pytest.mark.qemu
def test_a_workers_wrong_mark_is_a_failed_test_with_its_sentence(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.guest(cpu="pentum4")
        def test_wrong(guest): pass
        def test_right(guest): pass
        """
    )
    result = pytester.runpytest_subprocess("--qemu", "-n", "1")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*::test_wrong: mark guest: cpu: found 'pentum4'*did you mean 'pentium4'[?]"])
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


@pytest.mark.qemu
def test_a_prompt_in_the_guest_of_a_failed_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # where this test itself runs in a worker
    pytester.makepyfile(MARK + "\ndef test_it(guest):\n    guest.put(b'what it left', '/tmp/left')\n    assert False\n")
    child = pytester.spawn_pytest("--qemu --qemu-interact-on-failure", expect_timeout=600.0)
    child.expect_exact("guest# ")
    child.sendline("cat /tmp/left; echo; cat /nowhere")
    child.expect_exact("what it left")
    child.expect_exact("No such file")
    child.expect_exact("guest# ")
    child.sendline("exit")
    child.expect_exact("1 failed")
    child.close()


@pytest.mark.qemu
def test_a_prompt_in_a_worker_is_refused(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    pytester.makepyfile(MARK + "\ndef test_it(guest):\n    guest.interact()\n")
    result = pytester.runpytest_inprocess("--qemu")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*HostError: a worker of pytest-xdist has no terminal*", "*run this test with -n 0*"])
