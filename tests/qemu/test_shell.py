# SPDX-License-Identifier: GPL-2.0-only
"""Does a person get the guest's console, and the terminal back?"""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest
from command_line import CommandLine, qemus_in
from ended_terminals import exit_status, kill_on_terminal
from pseudo_terminals import PSEUDO_TERMINALS

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up"), PSEUDO_TERMINALS]

PROMPT = "athlon:/ # "
LIMIT = 600
"""Host seconds, for a host that is very busy."""


@contextmanager
def shell(lab: Path, *options: str) -> Iterator[pexpect.spawn[str]]:
    """The command on a terminal of its own, its console's log below ``lab``."""
    arguments = ["--kernel", "lab-i386-up", "--cpu", "athlon", "--accel", "tcg", "--console", str(lab / "logs")]
    program = "from orchestrator.cli.main import main; main()"
    # Test runners set these, and they would be believed rather than the terminal.
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    person = pexpect.spawn(
        sys.executable,
        ["-P", "-c", program, "shell", *arguments, *options],
        timeout=LIMIT,
        dimensions=(33, 111),
        env={**environment, "ORCHESTRATOR_LAB": str(lab), "TERM": "xterm-256color"},
        encoding="utf-8",
    )
    try:
        yield person
    finally:
        kill_on_terminal(person)


def ends(person: pexpect.spawn[str], words: str, status: int) -> None:
    """The command says this, and then ends with the status."""
    person.expect_exact(words)
    assert exit_status(person) == status


def qemu_of(person: pexpect.spawn[str]) -> int:
    """The process number of the QEMU that the command has started."""
    assert person.pid is not None
    (qemu,) = (
        child
        for shell in children_of(person.pid)
        for child in children_of(shell)
        if Path(f"/proc/{child}/comm").read_text().startswith("qemu-system")
    )
    return qemu


def children_of(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(child) for children in tasks for child in children.read_text().split()]


def test_a_person_works_on_the_console(tmp_path: Path) -> None:
    with shell(tmp_path) as person:
        before = termios.tcgetattr(person.child_fd)
        person.expect_exact(PROMPT)
        assert len(qemus_in(tmp_path)) == 1
        person.sendline("cd /proc; echo $TERM; stty size; grep 'model name' cpuinfo; tty")
        person.expect(r"xterm-256color\r\n33 111\r\nmodel name\s*: AMD Athlon\(tm\) XP 2400\+\r\n/dev/ttyS0\r\n")
        person.expect_exact("athlon:/proc # ")
        # Job control and the interrupt key reach the guest, not the lab.
        person.sendline("sh -c \"echo be''gun; exec sleep 1000\"")
        person.expect_exact("begun\r\n")
        person.sendintr()
        person.expect_exact("athlon:/proc # ")
        person.sendline("exit")
        ends(person, "the guest has ended", 0)
        assert termios.tcgetattr(person.child_fd) == before
    assert qemus_in(tmp_path) == []
    assert "sleep 1000" in (tmp_path / "logs" / "guest.console").read_text(errors="replace")


@pytest.mark.nightly("the key is pressed every day, in an idle guest: a guest more")
def test_the_escape_key_leaves_at_once(tmp_path: Path) -> None:
    with shell(tmp_path) as person:
        person.expect_exact(PROMPT)
        person.sendline("while :; do :; done")
        person.send(chr(29))
        ends(person, "the guest has ended", 0)
    assert qemus_in(tmp_path) == []


ANOTHER_END = pytest.mark.nightly("a guest that ends itself otherwise: a guest more")


@pytest.mark.parametrize(
    "command", ["poweroff", pytest.param("reboot -f", marks=ANOTHER_END), pytest.param("halt", marks=ANOTHER_END)]
)
def test_a_guest_that_ends_itself_has_ended(command: str, tmp_path: Path) -> None:
    with shell(tmp_path) as person:
        person.expect_exact(PROMPT)
        person.sendline(command)
        person.expect_exact("the guest has ended")
        person.wait()
        assert person.exitstatus == 0


@pytest.mark.nightly("a guest more; a QEMU that dies is an error every day")
def test_a_panic_is_an_error(tmp_path: Path) -> None:
    with shell(tmp_path) as person:
        person.expect_exact(PROMPT)
        person.sendline("echo c > /proc/sysrq-trigger")
        ends(person, "the guest's kernel panicked", 1)
    assert qemus_in(tmp_path) == []


@pytest.mark.nightly("a guest more; commands hear of reports every day")
def test_a_report_of_the_kernel_is_an_error(tmp_path: Path, late_oops: Path) -> None:
    with shell(tmp_path, "--module", str(late_oops), "--allow-oops", "WARNING: CPU") as person:
        person.expect_exact(PROMPT)
        person.sendline("exit")
        ends(person, "guest.console: the guest's kernel reported trouble (oops in die [late_oops])", 1)
    assert qemus_in(tmp_path) == []


@pytest.mark.parametrize(
    "end", [chr(29), pytest.param("exit\n", marks=pytest.mark.nightly("the other way out: a guest more"))]
)
def test_a_taint_without_a_report_is_an_error(end: str, tmp_path: Path) -> None:
    with shell(tmp_path) as person:
        person.expect_exact(PROMPT)
        # The prompt comes again while the line is typed.
        person.sendline("echo 512 >/proc/sys/kernel/tainted; echo taint''ed")
        person.expect_exact("tainted\r\n")
        person.send(end)
        ends(person, "the guest's kernel has become tainted: a warning", 1)
    assert qemus_in(tmp_path) == []


def test_a_qemu_that_dies_is_an_error(tmp_path: Path) -> None:
    with shell(tmp_path) as person:
        before = termios.tcgetattr(person.child_fd)
        person.expect_exact(PROMPT)
        os.kill(qemu_of(person), signal.SIGKILL)
        ends(person, "guest.console: QEMU ended (signal 9)", 1)
        assert termios.tcgetattr(person.child_fd) == before


@pytest.mark.nightly("another command is killed every day: a guest more")
def test_a_killed_shell_leaves_no_guest(tmp_path: Path) -> None:
    with shell(tmp_path) as person:
        person.expect_exact(PROMPT)
        assert person.pid is not None
        os.kill(person.pid, signal.SIGKILL)
        assert CommandLine(tmp_path).qemus_after() == []


@pytest.mark.nightly("the other sudden end: a guest more")
def test_a_terminal_that_goes_takes_the_guest_along(tmp_path: Path) -> None:
    with shell(tmp_path) as person:
        person.expect_exact(PROMPT)
        with Path("/dev/null").open() as nothing:
            os.dup2(nothing.fileno(), person.child_fd)
        assert CommandLine(tmp_path).qemus_after() == []


def test_without_a_terminal_there_is_no_shell(tmp_path: Path) -> None:
    done = CommandLine(tmp_path).refused("shell", "--kernel", "lab-i386-up")
    assert done.returncode == 2
    assert "a shell needs a terminal" in done.stderr
    assert "orchestrator exec -- COMMAND" in done.stderr
