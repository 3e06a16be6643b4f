# SPDX-License-Identifier: GPL-2.0-only
"""Does a session's tracefile have the lines that its guests executed, and those that they did not?"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PARITY = Path(__file__).parent / "modules" / "parity.c"
LINES = PARITY.read_text().splitlines()


def line(text: str) -> int:
    return next(number for number, one in enumerate(LINES, 1) if text in one)


def executed(tracefile: Path, source: str = str(PARITY)) -> dict[int, int]:
    """How often each line of a source file was executed."""
    record = re.search(
        rf"^SF:{re.escape(source)}\n(.*?)^end_of_record", tracefile.read_text(), re.MULTILINE | re.DOTALL
    )
    assert record is not None
    return {int(number): int(count) for number, count in re.findall(r"^DA:(\d+),(\d+)$", record[1], re.MULTILINE)}


@pytest.mark.qemu
def test_a_branch_that_no_test_takes_has_no_executions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        pytestmark = pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="tcg")

        @pytest.mark.parametrize("number", [4, 6])
        def test_even(shared_guest, kmod, number):
            kmod({str(PARITY)!r}).set_parameter("number", number)

        def test_twice_and_no_end(guest):
            guest.load({str(PARITY)!r})
            guest.succeed(["rmmod", "parity"])
            guest.load({str(PARITY)!r}).set_parameter("number", 8)
        """
    )
    result = pytester.runpytest_inprocess("--qemu", "--qemu-cover=out.info", "--qemu-cover-of=parity")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["coverage: parity * of * lines (* %), written to *out.info"])
    found = executed(pytester.path / "out.info")
    assert {text: found[line(text)] for text in ("number & 1", "odds++", "evens++", "begins", "%d even")} == {
        "number & 1": 3,
        "odds++": 0,
        "evens++": 3,
        "begins": 4,
        "%d even": 3,
    }
    assert not [*pytester.path.parent.rglob("*.cover")]


@pytest.mark.qemu
@pytest.mark.nightly("four booted guests")
def test_two_kernels_in_two_workers(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.guest(kernel=["debian-686", "debian-amd64"], smp=2, fresh=True)
        def test_odd(guest):
            guest.load({str(PARITY)!r}).set_parameter("number", 3)
            guest.reboot()
            guest.load({str(PARITY)!r}).set_parameter("number", 4)
            with guest.expect_panic("sysrq triggered crash"):
                guest.succeed(["sh", "-c", "echo c >/proc/sysrq-trigger"])
        """
    )
    result = pytester.runpytest_subprocess("--qemu", "-n2", "--qemu-cover=out.info")
    result.assert_outcomes(passed=2)
    found = executed(pytester.path / "out.info")
    assert [found[line(text)] for text in ("number & 1", "odds++", "evens++", "begins")] == [4, 2, 2, 4]


@pytest.mark.qemu
@pytest.mark.nightly("the debug information of a kernel is a download of 1 GB")
def test_a_function_and_a_module_where_instructions_are_counted(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.guest(kernel="debian-amd64", timing="instructions")
        def test_it(guest, instruction_budget):
            guest.load({str(PARITY)!r}).set_parameter("number", 5)
            instruction_budget.call("getppid")
        """
    )
    pair = ("--qemu-cover-of=parity", "--qemu-cover-of=vfs_read")
    result = pytester.runpytest_inprocess("--qemu", "--qemu-update-budgets", "--qemu-cover=out.info", *pair)
    result.assert_outcomes(passed=1)
    found = executed(pytester.path / "out.info")
    assert [found[line(text)] for text in ("number & 1", "odds++", "evens++", "begins")] == [1, 1, 0, 1]
    assert 0 in executed(pytester.path / "out.info", "fs/read_write.c").values()
    assert max(executed(pytester.path / "out.info", "fs/read_write.c").values()) > 1
    lcov = shutil.which("lcov")
    if lcov is not None:
        summary = subprocess.run([lcov, "--summary", "out.info"], capture_output=True, text=True, check=True)
        assert re.search(r"lines\.*: \d+\.\d% \(\d+ of \d+ lines\)", summary.stdout + summary.stderr)
