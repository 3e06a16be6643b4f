# SPDX-License-Identifier: GPL-2.0-only
"""Is the worst that a kernel reports on its console seen, and nothing made of what only looks like it?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from full_disk import room
from hypothesis import given
from hypothesis import strategies as st
from namespaces import OWN_MOUNTS, fork_with_mount

from orchestrator.catalog.cpus import cpu
from orchestrator.errors import GuestOops, HostError
from orchestrator.guest.channel import CommandOutput, Stream, complaint
from orchestrator.guest.console import Console, plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_reports import REPORT_LINES, KernelReport, Trouble
from orchestrator.guest.machine import Machine

GOLDEN = Path(__file__).parent / "golden" / "console"

# Each log: its meaning, and the line that shows it.
EXPECTED: dict[str, tuple[Trouble, str] | None] = {
    "panic-sysrq": (Trouble.PANIC, "Kernel panic - not syncing: sysrq triggered crash"),
    "panic-no-init": (Trouble.PANIC, "Kernel panic - not syncing: No working init found."),
    "panic-behind-an-unfinished-line": (Trouble.PANIC, "Kernel panic - not syncing: Attempted to kill init!"),
    "oops-null-pointer": (Trouble.OOPS, "BUG: kernel NULL pointer dereference, address: 00000000"),
    "oops-then-panic": (Trouble.PANIC, "Kernel panic - not syncing: Fatal exception in interrupt"),
    "bug-page-fault-64": (Trouble.OOPS, "BUG: unable to handle page fault for address: ffffffffc0403010"),
    "bug-kernel-bug-at": (Trouble.OOPS, "kernel BUG at arch/x86/kernel/kprobes/core.c:880!"),
    "general-protection-fault": (Trouble.OOPS, "general protection fault, probably for non-canonical address"),
    "stray-int3": (Trouble.OOPS, "int3: 0000 [#1] PREEMPT SMP"),
    "scheduling-while-atomic": (Trouble.OOPS, "BUG: scheduling while atomic: insmod/70/0x00000002"),
    "warning": (Trouble.WARNING, "WARNING: CPU: 0 PID: 64 at kernel/kprobes.c:1067 arm_kprobe+0x6a/0x80"),
    "rcu-stall": (Trouble.STALL, "rcu: INFO: rcu_preempt self-detected stall on CPU"),
    "rcu-stall-of-another-cpu": (Trouble.STALL, "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"),
    "rcu-tasks-stall": (Trouble.STALL, "INFO: rcu_tasks detected stalls on tasks:"),
    "soft-lockup": (Trouble.STALL, "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [insmod:77]"),
    "hung-task": (Trouble.STALL, "INFO: task rmmod:93 blocked for more than 120 seconds."),
    "hard-lockup": (Trouble.STALL, "Watchdog detected hard LOCKUP on cpu 1"),
    "kasan": (Trouble.OOPS, "BUG: KASAN: use-after-free in lab_exit+0x1f/0x40"),
    "slab-poison": (Trouble.OOPS, "BUG kmalloc-64 (Tainted: G           O      ): Poison overwritten"),
    "ubsan": (Trouble.OOPS, "UBSAN: shift-out-of-bounds"),
    "lockdep-circular": (Trouble.WARNING, "WARNING: possible circular locking dependency detected"),
    "lockdep-wait-context": (Trouble.OOPS, "[ BUG: Invalid wait context ]"),
    "lockdep-user-space": (Trouble.WARNING, "WARNING: lock held when returning to user space!"),
    "suspicious-rcu": (Trouble.WARNING, "WARNING: suspicious RCU usage"),
    "double-fault": (Trouble.PANIC, "PANIC: double fault, error_code: 0x0"),
    "bad-page-table": (Trouble.OOPS, "Bad pagetable: 0009 [#1] PREEMPT SMP"),
    "printk-caller": (Trouble.OOPS, "BUG: sleeping function called from invalid context"),
    "warning-then-oops": (Trouble.OOPS, "BUG: kernel NULL pointer dereference, address: 00000000"),
    "benign-warnings": None,
    "clean-boot": None,
    "user-text-quoting-trouble": None,
    "escape-codes-and-noise": (Trouble.PANIC, "Kernel panic - not syncing: VFS: Unable to mount root fs"),
    "no-time-stamps": (Trouble.OOPS, "Oops: 0000 [#1] SMP"),
    "empty": None,
}


def test_every_log_has_its_expectation() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(EXPECTED)


def worst(console: Console, mark: int = 0) -> KernelReport | None:
    """The first of the worst reports since a mark."""
    return max(console.reports(mark), key=lambda report: list(Trouble).index(report.trouble), default=None)


@pytest.mark.parametrize("name", list(EXPECTED))
def test_what_a_log_means(name: str) -> None:
    report = worst(Console(GOLDEN / f"{name}.log"))
    expected = EXPECTED[name]
    if expected is None:
        assert report is None
        return
    assert report is not None
    assert report.trouble is expected[0]
    assert any(expected[1] in line for line in report.lines[:4])
    assert all(line.isprintable() or "\t" in line for line in report.lines)


REPORTS = {
    "warning-then-oops": [
        (Trouble.WARNING, "------------[ cut here ]------------", "---[ end trace 0000000000000000 ]---"),
        (Trouble.OOPS, "BUG: kernel NULL pointer dereference", "---[ end trace 0000000000000000 ]---"),
    ],
    "oops-null-pointer": [(Trouble.OOPS, "BUG: kernel NULL", "---[ end trace")],
    "oops-then-panic": [
        (Trouble.OOPS, "BUG: kernel NULL", "---[ end trace"),
        (Trouble.PANIC, "Kernel panic", "Kernel Offset: disabled"),
    ],
    "bug-kernel-bug-at": [(Trouble.OOPS, "------------[ cut here ]", "CPU: 1 PID: 40 Comm: rmmod")],
    "scheduling-while-atomic": [(Trouble.OOPS, "BUG: scheduling while atomic", "Modules linked in")],
    "stray-int3": [(Trouble.OOPS, "int3: 0000 [#1]", "CPU: 0 PID: 61")],
    "clean-boot": [],
}


@pytest.mark.parametrize("name", list(REPORTS))
def test_each_report_is_told_from_the_next(name: str) -> None:
    reports = list(Console(GOLDEN / f"{name}.log").reports())
    assert [report.trouble for report in reports] == [trouble for trouble, _, _ in REPORTS[name]]
    for report, (_, first, last) in zip(reports, REPORTS[name], strict=True):
        assert first in report.lines[0]
        assert last in report.lines[-1]


def test_a_report_holds_what_the_warning_was_given_to_say(tmp_path: Path) -> None:
    console = Console(tmp_path / "log")
    sign = "WARNING: CPU: 0 PID: 7 at lab_init+0x3/0x40 [lab]"
    console.path.write_text(
        f"[ 1.000000] ------------[ cut here ]------------\n[ 1.000001] so it is\n[ 1.000002] {sign}\n"
    )
    (report,) = console.reports()
    assert report.is_expected([re.compile("nothing"), re.compile("so it is")])
    assert not report.is_expected([re.compile("it was")])
    assert not report.is_expected([])


def test_a_report_without_an_end_is_limited(tmp_path: Path) -> None:
    console = Console(tmp_path / "log")
    console.path.write_text("[    1.000000] BUG: x\n" + "[    1.000000] y\n" * 1000 + "[    2.000000] BUG: z\n")
    assert [len(report.lines) for report in console.reports()] == [REPORT_LINES, 1]


def test_a_report_quotes_no_line_without_an_end(tmp_path: Path) -> None:
    console = Console(tmp_path / "log")
    console.path.write_text("u" * 10_000 + "[    1.000000] BUG: " + "x" * 500_000 + "\n[    1.000000] " + "y" * 500_000)
    (report,) = console.reports()
    assert [len(line) for line in report.lines] == [4096, 4096]


def test_what_was_printed_since_does_not_hide_a_report(tmp_path: Path) -> None:
    console = Console(tmp_path / "log")
    console.path.write_text("[    1.000000] BUG: x\n" + ("y" * 127 + "\n") * (6 << 13))
    assert console.length() > 6 << 20
    (report,) = console.reports()
    assert report.lines[0] == "[    1.000000] BUG: x"


def test_escape_sequences_are_left_out() -> None:
    assert Console(GOLDEN / "escape-codes-and-noise.log").last_lines() == [
        "SeaBIOS",
        "\ufffd\ufffd\\x00\ufffd noise \ufffd",
        "[    2.000100] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)",
        "[    2.000110] CPU: 0 PID: 1 Comm: swapper/0 Not tainted 6.1.0-40-686 #1",
        "\\x07",
    ]


def test_control_characters_are_not_quoted() -> None:
    printed = b"a\x1b[31mb\x1b]0;title\x07c\n\xc2\x9b31md\x7f\r\n\n\ttab \xc3\xa9\n"
    assert plain_lines(printed) == ["abc", "\\x9b31md\\x7f", "\ttab \u00e9"]
    output = CommandOutput()
    output.add(Stream.STDERR, printed)
    assert output.last_lines() == plain_lines(printed)
    assert complaint(b"cat: x: \x1b[2JNo such file\n") == "no such file"


def test_only_what_came_after_the_mark_counts(tmp_path: Path) -> None:
    console = Console(tmp_path / "log")
    assert console.length() == 0
    assert worst(console) is None
    assert console.last_lines() == []
    console.path.write_text("[    1.000000] Oops: 0000 [#1] SMP\n")
    mark = console.length()
    assert worst(console, mark) is None
    with console.path.open("a") as file:
        file.write("[    2.000000] WARNING: CPU: 0 PID: 1 at x.c:1 f+0x1/0x2\n")
    after, whole = worst(console, mark), worst(console)
    assert after is not None
    assert whole is not None
    assert (after.trouble, whole.trouble) == (Trouble.WARNING, Trouble.OOPS)


def test_the_last_lines_are_the_last(tmp_path: Path) -> None:
    console = Console(tmp_path / "log")
    console.path.write_text("".join(f"line {number}\r\n\r\n" for number in range(5000)))
    assert console.last_lines(3) == ["line 4997", "line 4998", "line 4999"]
    assert len(console.last_lines()) == 20


def test_a_flooded_console_is_read_in_bounds(tmp_path: Path) -> None:
    console = Console(tmp_path / "log")
    with console.path.open("w") as file:
        file.write("Oops: long ago\n")
        for _ in range(80):
            file.write(("y" * 127 + "\n") * 512)
        file.write("[    2.000000] Kernel panic - not syncing: at last\n")
    report = worst(console)
    assert report is not None
    assert report.trouble is Trouble.PANIC


@given(content=st.binary(max_size=300), mark=st.integers(0, 400))
def test_any_bytes_are_survived(content: bytes, mark: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    console = Console(tmp_path_factory.getbasetemp() / "any.log")
    console.path.write_bytes(content)
    worst(console, mark)
    assert len(console.last_lines(5)) <= 5
    console.path.write_bytes(content + b"\n[    1.000000] BUG: x\n" + content[::-1])
    report = worst(console)
    assert report is not None
    assert report.trouble in (Trouble.OOPS, Trouble.PANIC)


@given(parts=st.lists(st.binary(max_size=40), max_size=10))
def test_whole_lines_are_passed_on_once_each_and_only_when_they_end(
    parts: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    console = Console(tmp_path_factory.getbasetemp() / "growing.log")
    received: list[str] = []
    mark = 0
    content = b""
    for part in parts:
        content += part
        console.path.write_bytes(content)
        lines, mark = console.whole_lines(mark)
        received += lines
        assert mark == content.rfind(b"\n") + 1
    console.path.write_bytes(content[: content.rfind(b"\n") + 1])
    assert received == console.whole_lines(0)[0]


def test_a_line_without_an_end_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    console = Console(tmp_path / "log")
    assert console.whole_lines(0) == ([], 0)
    console.path.write_bytes(b"x" * (1 << 20) + b"more")
    (line,), mark = console.whole_lines(0)
    assert (len(line), mark) == (1 << 20, 1 << 20)
    assert console.whole_lines(mark) == ([], mark)


# Is a console on a full disk, which may lack lines, never taken for one without trouble?


def check_on_a_full_disk(disk: str) -> None:
    folder = Path(disk)
    guest = Guest(Machine(cpu("pentium4"), folder / "kernel", folder / "initramfs"), folder)
    guest.console.path.write_text("[    1.000000] Freeing unused kernel memory\n")
    guest.check_console()
    with room(folder, 4), pytest.raises(HostError, match=r"what the guest prints: 0\.0 MB are free") as caught:
        guest.check_console()
    assert caught.value.where == str(guest.console.path)
    guest.console.path.write_text("[    1.000000] BUG: unable to handle page fault for address: deadbeef\n")
    with room(folder, 4), pytest.raises(GuestOops):
        guest.check_console()


@OWN_MOUNTS
def test_what_may_be_missing_is_told(tmp_path: Path) -> None:
    mount = ("tmpfs", "size=1m", "tmpfs", tmp_path)
    assert fork_with_mount(mount, check_on_a_full_disk, tmp_path) == ""
