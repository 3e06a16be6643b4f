# SPDX-License-Identifier: GPL-2.0-only
"""Does gdb stop where it is asked to, in the same place twice, without changing what is measured?"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest
from command_line import PATIENCE, CommandLine, qemus_in
from ended_terminals import exit_status, kill_on_terminal
from pseudo_terminals import PSEUDO_TERMINALS

NO_GDB = pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb: apt install gdb")
pytestmark = [pytest.mark.qemu, PSEUDO_TERMINALS, NO_GDB]

PROMPT = "(gdb) "
COMMAND = r"waits for gdb:\r\n  (gdb [^\r]+)\r\n"
NUMBER = re.compile(r"\$\d+ = (0x[0-9a-f]+)")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}


@contextmanager
def started(lab: Path, *words: str) -> Iterator[pexpect.spawn[str]]:
    """A command of the lab on a terminal."""
    person = pexpect.spawn(
        sys.executable,
        ["-P", "-c", "from orchestrator.cli.main import main; main()", *words],
        timeout=PATIENCE,
        env={**ENVIRONMENT, "ORCHESTRATOR_LAB": str(lab), "TERM": "dumb"},
        encoding="utf-8",
    )
    try:
        yield person
    finally:
        kill_on_terminal(person)


class Gdb:
    """gdb, started by the command line that the lab has printed."""

    def __init__(self, lab: pexpect.spawn[str]) -> None:
        assert lab.expect([COMMAND, pexpect.EOF]) == 0, lab.before
        assert isinstance(lab.match, re.Match)
        program, *arguments = shlex.split(lab.match[1])
        self._gdb = pexpect.spawn(
            program,
            ["-q", "-nx", *arguments],
            timeout=PATIENCE,
            env={**ENVIRONMENT, "TERM": "dumb"},
            dimensions=(500, 500),
            encoding="utf-8",
        )
        self._gdb.expect_exact(PROMPT)
        self.begun = str(self._gdb.before)

    def __call__(self, command: str) -> str:
        self._gdb.sendline(command)
        self._gdb.expect_exact(PROMPT)
        return str(self._gdb.before).replace("\r", "").partition("\n")[2]

    def number(self, expression: str) -> int:
        match = NUMBER.search(self(f"print/x {expression}"))
        assert match is not None
        return int(match[1], 0)

    def end(self) -> None:
        kill_on_terminal(self._gdb)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A lab with a run of a kprobe on Debian's i386 kernel."""
    command = CommandLine(tmp_path_factory.mktemp("lab"))
    done = command.run("run", "configs/quickstart.yaml", "--only", "kprobe", "--set", "benchmark.calls=1000")
    assert done.returncode == 0, done.stderr
    return command


def test_gdb_at_an_instruction_of_a_cell_changes_nothing(command: CommandLine) -> None:
    value = command.cells()["kprobe"].value
    assert value is not None
    with started(command.lab, "debug", "latest:kprobe", "--instruction", f"{value:g}") as lab:
        gdb = Gdb(lab)
        last = gdb.number("$pc")
        assert "jns" in gdb("x/i $pc")
        gdb("stepi")
        first = gdb.number("$pc")
        assert first < last < first + 20  # back to the start of the loop: it was the call's last instruction
        assert gdb.number("$eax") == 0  # what gettimeofday() has returned
        gdb("hbreak kprobe_func")
        assert re.search(r"Breakpoint 1, .*\bkprobe_func \(", gdb("continue"))  # of the next call, in the lab's module
        assert "detached" in gdb("detach")
        lab.expect_exact("to go back: ")
        lab.expect_exact(f"debug latest:kprobe --instruction {value - 1:g}")
        lab.expect_exact(f"{value:g} instructions per call")
        assert exit_status(lab) == 0
        gdb.end()
    assert qemus_in(command.lab) == []


@pytest.mark.nightly("six more guests; gdb stops at an instruction every day")
class TestPlaces:
    def place(self, command: CommandLine, *words: str) -> tuple[int, str]:
        with started(command.lab, "debug", "latest:kprobe", *words) as lab:
            gdb = Gdb(lab)
            pair = gdb.number("$pc"), gdb("info symbol $pc")
            gdb("detach")
            assert exit_status(lab) == 0
            gdb.end()
        return pair

    def test_an_instruction_is_the_same_twice(self, command: CommandLine) -> None:
        assert self.place(command, "--instruction", "300") == self.place(command, "--instruction", "300")

    def test_a_function_of_the_kernel_and_of_a_module(self, command: CommandLine) -> None:
        assert self.place(command, "--at", "kprobe_int3_handler:3")[1].startswith("kprobe_int3_handler in section")
        assert self.place(command, "--at", "kprobe_func")[1].startswith("kprobe_func in section .text of")

    def test_what_the_calls_do_not_come_to(self, command: CommandLine) -> None:
        done = command.run("debug", "latest:kprobe", "--at", "vfs_read")
        assert done.returncode == 2
        assert "the timed calls do not enter vfs_read" in done.stderr
        assert qemus_in(command.lab) == []

    def test_a_guest_that_nobody_debugs_ends_with_the_command(self, command: CommandLine) -> None:
        with started(command.lab, "debug", "latest:kprobe") as lab:
            lab.expect(COMMAND)
            lab.kill(signal.SIGINT)
            assert exit_status(lab) == 130
        assert command.qemus_after() == []


PROGRAM = """\
#include <vmlinux.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("fentry/vfs_read")
int on_read(void *context)
{
	return 0;
}
"""


@pytest.mark.nightly("two more guests; programs compiled at run time have names in profiles every day")
def test_a_bpf_program_has_its_name_in_gdb(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    (tmp_path / "reads.bpf.c").write_text(PROGRAM)
    done = command.run("cost", tmp_path / "reads.bpf.c", "--kernels", "debian-amd64")
    assert done.returncode == 0, done.stderr
    refused = command.run("debug", "latest:*on_read*", "--at", "BPF program on_raed")
    assert refused.returncode == 2
    assert "hint: did you mean BPF program on_read?" in refused.stderr
    with started(command.lab, "debug", "latest:*on_read*", "--at", "BPF program on_read:2") as lab:
        gdb = Gdb(lab)
        assert gdb("info symbol $pc").startswith("bpf_prog_on_read in section")
        frames = re.findall(r"#\d+ +0x[0-9a-f]+ in (\w+)", gdb("backtrace 4"))
        assert frames[:3] == ["bpf_prog_on_read", "bpf_trampoline", "vfs_read"]
        gdb("detach")
        assert exit_status(lab) == 0
        gdb.end()


@pytest.mark.nightly("three more guests")
class TestCommands:
    @pytest.mark.parametrize("kernel", ["debian-686", "debian-amd64"])
    def test_a_command_waits_for_gdb(self, tmp_path: Path, kernel: str) -> None:
        entry = "__ia32_sys_newuname" if kernel == "debian-686" else "__x64_sys_newuname"
        with started(tmp_path, "exec", "--gdb", "--kernel", kernel, "--timeout", "30", "--", "uname", "-m") as lab:
            gdb = Gdb(lab)
            assert "breakpoint 1 at" in gdb(f"hbreak {entry}")
            assert re.search(rf"Breakpoint 1, .*\b{entry} \(", gdb("continue"))
            gdb.end()  # without a word, and the guest goes on
            lab.expect("i686|x86_64")
            assert exit_status(lab) == 0

    def test_the_shell_waits_for_gdb(self, tmp_path: Path) -> None:
        with started(tmp_path, "shell", "--gdb", "--core", str(tmp_path / "core")) as lab:
            gdb = Gdb(lab)
            gdb("detach")
            lab.expect_exact("# ")
            lab.sendline("exit")
            assert exit_status(lab) == 0
            gdb.end()
        assert (tmp_path / "core").stat().st_mode & 0o777 == 0o600

    def test_a_test_waits_for_gdb(self, tmp_path: Path) -> None:
        test = tmp_path / "test_it.py"
        test.write_text("def test_it(guest):\n    assert guest.succeed(['uname', '-m']).text == 'i686\\n'\n")
        words = ["-m", "pytest", "--qemu", "--qemu-gdb", "-p", "no:cacheprovider", "-n", "0", f"--rootdir={tmp_path}"]
        person = pexpect.spawn(
            sys.executable, [*words, str(test)], timeout=PATIENCE, env=ENVIRONMENT, encoding="utf-8", cwd=tmp_path
        )
        gdb = Gdb(person)
        assert "breakpoint 1 at" in gdb("hbreak __ia32_sys_newuname")
        assert "__ia32_sys_newuname" in gdb("continue")
        gdb("detach")
        person.expect_exact("1 passed")
        assert exit_status(person) == 0
        gdb.end()
