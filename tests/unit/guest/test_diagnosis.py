# SPDX-License-Identifier: GPL-2.0-only
"""Is what ended a guest told: a panic, a refused CPU, lack of memory, trouble that tainted its kernel?"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from orchestrator.catalog.cpus import cpu
from orchestrator.errors import (
    EvidenceError,
    GuestConnectionLost,
    GuestError,
    GuestExit,
    GuestHang,
    GuestOops,
    GuestPanic,
    GuestRefusal,
    UnsupportedError,
)
from orchestrator.guest import memory_kills, slots
from orchestrator.guest.boot_stub import BootStub, is_stopped_stub
from orchestrator.guest.console import REPORTS_MAX, Console
from orchestrator.guest.diagnosis import cause_of
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import DataDisk, Machine, RootImage
from orchestrator.guest.memory_kills import explain_kill
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.taint import taint_mask
from orchestrator.process import spawn
from orchestrator.run.guest_checks import permitted_taint

PANIC = "[    2.000000] Kernel panic - not syncing: is what the manual says"
ANSWER = "[    3.000000] Kernel panic - not syncing: NMI: Not continuing"
RESTART = "[    3.000000] reboot: Restarting system"
WARNING = "[    1.000000] WARNING: CPU: 0 PID: 1 at kernel/panic.c:1 f+0x1/0x2"
TERMINATED = "qemu-system-x86_64: terminating on signal 15 from pid 7 (systemd)"


def cause(folder: Path, lines: list[str], *, end: str = "exit 0", says: str = "") -> GuestError:
    """The error for a guest that printed these lines, and whose QEMU said something and ended so."""
    console, messages = Console(folder / "console"), folder / "messages"
    console.path.write_text("".join(f"{line}\n" for line in lines))
    messages.write_text(says)
    process = spawn(["sh", "-c", end])
    try:
        return cause_of(GuestConnectionLost("it broke"), "running true", console, messages, process)
    finally:
        process.close()


def test_a_qemu_that_ends_after_a_panic_has_panicked(tmp_path: Path) -> None:
    error = cause(tmp_path, [PANIC])
    assert isinstance(error, GuestPanic)
    assert error.what == "the guest's kernel panicked while running true: is what the manual says"


def test_a_panic_behind_many_reports_is_found(tmp_path: Path) -> None:
    assert isinstance(cause(tmp_path, [*[WARNING] * (REPORTS_MAX + 1), PANIC]), GuestPanic)


@pytest.mark.parametrize(
    ("lines", "end", "says", "hint"),
    [
        ([PANIC, RESTART], "exit 0", "", "the guest restarted, or switched itself off"),
        ([PANIC], "exit 0", TERMINATED, "another program or a person ended it"),
        ([RESTART], "exit 0", TERMINATED, "another program or a person ended it"),
        ([PANIC], "kill -KILL $$", "", "QEMU's messages come first above"),
    ],
)
def test_a_panic_that_a_program_printed_is_not_what_ended_it(
    lines: list[str], end: str, says: str, hint: str, tmp_path: Path
) -> None:
    error = cause(tmp_path, lines, end=end, says=says)
    assert isinstance(error, GuestExit)
    assert error.hint.startswith(hint)
    assert lines[-1] in error.detail


def test_a_panic_while_a_guest_restarts_is_one(tmp_path: Path) -> None:
    assert isinstance(cause(tmp_path, [RESTART, PANIC]), GuestPanic)


def test_a_guest_that_has_answered_is_not_waited_for(tmp_path: Path) -> None:
    process, refusal = spawn(["true"]), GuestRefusal("cannot read /nowhere: no such file or directory")
    console, messages = Console(tmp_path / "console"), tmp_path / "messages"
    try:
        # Where QEMU's end is looked for, that is the cause.
        assert cause_of(refusal, "reading /nowhere", console, messages, process) is refusal
    finally:
        process.close()


@pytest.mark.parametrize("others", [[], [WARNING] * (REPORTS_MAX + 1)])
def test_a_kernel_that_answers_an_nmi_had_not_panicked(others: list[str], tmp_path: Path) -> None:
    console = Console(tmp_path / "console")
    place = "[    3.000001] EIP: lab_spin+0x1/0x2 [lab]"
    console.path.write_text("".join(f"{line}\n" for line in [PANIC, *others, ANSWER, place]))
    error = cause_of(GuestHang("no answer"), "running true", console, tmp_path / "messages", None)
    assert isinstance(error, GuestHang)
    assert ("reported trouble (warning in f)" in error.what) == bool(others)
    assert "(panic" not in error.what
    assert place in error.detail
    assert ANSWER not in error.detail


def test_a_task_that_waits_for_a_disk_in_virtual_time_is_no_stall(tmp_path: Path) -> None:
    disk = RootImage("own", "key", tmp_path / "disk", "qcow2")
    on_disk = Machine(cpu("athlon64"), tmp_path / "kernel", tmp_path / "initramfs", root=disk)
    without = replace(on_disk, root=None)
    with_modules = replace(without, data=(DataDisk("modules", tmp_path / "modules"),))
    for machine in (on_disk, with_modules, without, replace(on_disk, timing="tcg")):
        guest = Guest(machine, tmp_path)
        guest.console.path.write_text("[ 4109.364664] INFO: task agent:1 blocked for more than 120 seconds.\n")
        if machine in (on_disk, with_modules):
            guest.check_console()
            continue
        with pytest.raises(GuestOops, match="stall"):
            guest.check_console()


def test_a_panic_that_no_command_met_names_the_log_that_is_left(tmp_path: Path) -> None:
    guest = Guest(Machine(cpu("pentium4"), tmp_path / "kernel", tmp_path / "initramfs"), tmp_path)
    guest.console.path.write_text(f"{PANIC}\n")
    with pytest.raises(GuestPanic, match="panicked: is what the manual says") as panic:
        guest.check_console()
    assert panic.value.where == str(guest.console.path)


# Is a guest's taint read once for all who ask, and is what no kernel says an error?


class Answering:
    """A guest whose file of the taint has this content."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def get(self, source: str, **_: object) -> bytes:
        return self._content


def guest(content: bytes) -> Guest:
    return cast(Guest, Answering(content))


def test_a_mask_is_a_number_in_a_line() -> None:
    assert taint_mask(guest(b"4096\n")) == 4096
    assert permitted_taint(guest(b"4096\n")) == 4096
    with pytest.raises(EvidenceError, match="taint"):
        permitted_taint(guest(b"4224\n"))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"-1\n", b"nothing\n", b"\xff\xfe", "²\n".encode(), b"x" * 100_000, b"9" * 5000]
)
def test_anything_else_is_an_error_of_the_guest(content: bytes) -> None:
    for read in (taint_mask, permitted_taint):
        with pytest.raises(GuestError, match="has no number for its taint") as refused:
            read(guest(content))
        assert len(refused.value.what) < 200


# Is a want of memory named where it has killed QEMU, and only there?

GROUPS = {
    "version 2": ("0::/user.slice/lab\n", "user.slice/lab/memory.events", "low 0\nmax 9\noom 2\noom_kill {}\n"),
    "version 1": (
        "9:name=systemd:/\n4:cpu,memory:/lab\n0::/\n",
        "memory/lab/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
    ),
}


class Host:
    """A host's files that count kills."""

    def __init__(self, root: Path, groups: str, file: str, text: str) -> None:
        (root / "groups").write_text(groups)
        self._file, self._text = root / file, text
        self._file.parent.mkdir(parents=True, exist_ok=True)

    def has_killed(self, number: int) -> None:
        self._file.write_text(self._text.format(number))


@pytest.fixture(params=[*GROUPS, "no groups"])
def host(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(slots, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(slots, "_MOUNTED", tmp_path)
    monkeypatch.setattr(memory_kills, "_HOST", tmp_path / "vmstat")
    return Host(tmp_path, *GROUPS.get(request.param, ("0::/\n", "vmstat", "nr_free_pages 9\noom_kill {}\n")))


def hint_of(status: int, before: int | None) -> str:
    ended = GuestExit("QEMU ended", hint="as before")
    ended.status = status
    explain_kill(ended, before)
    return ended.hint


def test_kills_for_want_of_memory_since_the_start_are_named(host: Host) -> None:
    host.has_killed(3)
    assert memory_kills.memory_kills() == 3
    host.has_killed(4)
    assert "lack of memory meanwhile" in hint_of(-signal.SIGKILL, 3)
    assert "the system killed no process" in hint_of(-signal.SIGKILL, 4)
    assert hint_of(-signal.SIGSEGV, 3) == hint_of(1, 3) == "as before"


def test_where_nothing_is_counted_nothing_is_claimed(host: Host) -> None:
    assert memory_kills.memory_kills() is None
    assert "may have killed it" in hint_of(-signal.SIGKILL, None)


def test_this_host_counts() -> None:
    counted = memory_kills.memory_kills()
    assert counted is not None
    assert counted >= 0


# Is a kernel's boot stub that has refused the CPU told from a guest that boots?

STOPPED = """
EIP=000002d2 EFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1
ES =1000 00010000 0000ffff 00009300
CS =1000 00010000 0000ffff 00009b00
CR0=00000010 CR2=00000000 CR3=00000000 CR4=00000000
"""
"""What QEMU 7.2 says of a CPU 486 in the boot stub of Debian's kernel for an i586."""

REFUSED = "Unable to boot - please use a kernel appropriate for your CPU.\n"


class Asked:
    """A monitor that answers with these registers; ``count`` is how often it was asked."""

    def __init__(self, registers: str) -> None:
        self.registers, self.count = registers, 0

    def human(self, line: str) -> str:
        assert line == "info registers"
        self.count += 1
        if not self.registers:
            raise GuestError("QEMU's monitor: human-monitor-command failed")
        return self.registers


def stub(monkeypatch: pytest.MonkeyPatch, folder: Path, printed: str, registers: str, silence: float) -> BootStub:
    monkeypatch.setattr("orchestrator.guest.boot_stub._STUB_SILENCE", silence)
    log = folder / "guest.console"
    log.write_text(printed)
    return BootStub(cast("Monitor", Asked(registers)), Console(log), "486")


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (
            "This kernel requires an i686 CPU, but only detected an i486 CPU.\n",
            "the kernel does not boot on CPU '486': This kernel requires an i686 CPU, but only detected an i486 CPU",
        ),
        (
            "This kernel requires the following features not present on the CPU:\nsse2 \n",
            "This kernel requires the following features not present on the CPU: sse2",
        ),
    ],
)
def test_the_kernels_words_are_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str, words: str
) -> None:
    refused = stub(monkeypatch, tmp_path, printed + REFUSED, STOPPED, 3600.0)
    with pytest.raises(UnsupportedError) as error:
        refused.check()
    assert error.value.what.endswith(words)
    assert error.value.detail == tuple(line.strip() for line in (printed + REFUSED).splitlines())
    assert error.value.where == str(tmp_path / "guest.console")
    assert "--cpu" in error.value.hint


def test_silent_panic_is_known_by_the_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="on CPU '486': its boot stub has stopped silently"):
        stub(monkeypatch, tmp_path, "", STOPPED, 0.0).check()


@pytest.mark.parametrize(
    ("printed", "registers", "silence"),
    [
        (REFUSED, STOPPED.replace("HLT=1", "HLT=0"), 3600.0),
        (REFUSED, STOPPED.replace("CR0=00000010", "CR0=80050033"), 3600.0),
        (REFUSED, "", 3600.0),
        ("", STOPPED.replace("CS =1000 00010000", "CS =f000 000f0000"), 0.0),
        ("[    0.010738] L1TF: Kernel not compiled for PAE.\n", STOPPED, 0.0),
        ("", STOPPED, 3600.0),
    ],
    ids=["works", "in a kernel", "no answer", "in the BIOS", "a kernel has begun", "not silent for long"],
)
def test_a_guest_that_boots_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, printed: str, registers: str, silence: float
) -> None:
    stub(monkeypatch, tmp_path, printed, registers, silence).check()


def test_registers_that_make_no_sense_show_nothing() -> None:
    assert is_stopped_stub(STOPPED)
    assert not is_stopped_stub("unknown command: 'info registers'")
