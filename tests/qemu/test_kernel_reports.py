# SPDX-License-Identifier: GPL-2.0-only
"""Does a command fail whose guest's kernel reported trouble, whatever the command itself returned?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

GUEST = ("--kernel", "lab-i386-up", "--cpu", "athlon", "--accel", "tcg")
WARNING, OOPS = r"WARNING: CPU: 0 .* late_oops_init", "NULL pointer dereference"


def test_an_oops_fails_a_command_that_succeeded(late_oops: Path, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    script = ("sh", "-c", "sleep 1; echo hello")
    done = CommandLine(tmp_path).run("exec", *GUEST, "--module", late_oops, "--console", logs, "--", *script)
    assert (done.returncode, done.stdout) == (1, "hello\n")
    assert f"error: {logs / 'guest.console'}: the guest's kernel reported trouble (" in done.stderr
    assert "(warning in late_oops_init [late_oops], oops in die [late_oops])\n" in done.stderr
    assert "late_oops_init" in done.stderr
    assert "BUG: kernel NULL pointer dereference, address: 00000000" in done.stderr
    assert "--allow-oops" in done.stderr


ANOTHER_STATUS = pytest.mark.nightly("the same with the other status: a guest more")


@pytest.mark.parametrize(
    ("allowed", "command", "status", "quoted"),
    [
        pytest.param([WARNING, OOPS], "exit 0", 0, [], marks=ANOTHER_STATUS),
        ([WARNING, OOPS], "exit 7", 7, []),
        ([WARNING], "exit 0", 1, ["(oops in die [late_oops])", "BUG: kernel NULL pointer"]),
        pytest.param(
            [OOPS],
            "exit 7",
            7,
            ["(warning in late_oops_init [late_oops])", "WARNING: CPU: 0 PID:"],
            marks=ANOTHER_STATUS,
        ),
    ],
)
def test_expected_reports_are_allowed_one_by_one(
    allowed: list[str], command: str, status: int, quoted: list[str], late_oops: Path, tmp_path: Path
) -> None:
    options = [word for pattern in allowed for word in ("--allow-oops", pattern)]
    script = ("sh", "-c", f"sleep 1; {command}")
    done = CommandLine(tmp_path).run("exec", *GUEST, "--module", late_oops, *options, "--", *script)
    assert done.returncode == status, done.stderr
    assert [text for text in quoted if text not in done.stderr] == []
    assert ("reported trouble" in done.stderr) == bool(quoted)


def test_a_taint_without_a_report_fails_a_command(tmp_path: Path) -> None:
    script = ("sh", "-c", "echo 512 >/proc/sys/kernel/tainted; echo hello")
    done = CommandLine(tmp_path).run("exec", *GUEST, "--allow-oops", ".", "--", *script)
    assert (done.returncode, done.stdout) == (1, "hello\n")
    assert "the guest's kernel has become tainted: a warning\n" in done.stderr
    assert "hint: the console shows no report of it; the kernel's log may: dmesg" in done.stderr


def test_a_command_that_does_not_end_is_explained_by_the_report(late_oops: Path, tmp_path: Path) -> None:
    done = CommandLine(tmp_path).run("exec", *GUEST, "--module", late_oops, "--timeout", "3", "--", "sleep", "1000")
    assert done.returncode == 1
    assert "sleep did not end within 3 s and was killed" in done.stderr
    assert "BUG: kernel NULL pointer dereference" in done.stderr
