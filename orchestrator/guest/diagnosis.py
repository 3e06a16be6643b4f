# SPDX-License-Identifier: GPL-2.0-only
"""Why a guest failed: a panic, a hang, a refused CPU, the OOM killer, or QEMU's end."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.deadline import Deadline
from orchestrator.errors import (
    GuestConnectionLost,
    GuestError,
    GuestExit,
    GuestHang,
    GuestOops,
    GuestPanic,
    GuestRefusal,
    UnsupportedError,
)
from orchestrator.guest.channel import kernel_value, whole_number
from orchestrator.guest.console import (
    QUOTED_LINES,
    Console,
    KernelReport,
    Trouble,
    culprit_of,
    excerpt,
    interrupted_at,
    is_idle,
    sign_in,
)
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.slots import memory_files
from orchestrator.process import Spawned, exit_status, how_ended, stat_fields

if TYPE_CHECKING:
    from orchestrator.guest.guest import Guest

_FOLLOWS = re.compile(
    r"Kernel panic - not syncing: (?:Fatal exception|panic_on_\w+ set|softlockup: hung tasks|hung_task: blocked tasks|"
    r"Hard LOCKUP|RCU Stall|System is deadlocked on memory|Out of memory|Aiee, killing interrupt handler|"
    r"Attempted to kill init|Attempted to kill the idle task|corrupted stack end)|panic_on_warn set"
)
"""Panics that a preceding report has led to."""

_PRECEDES = re.compile(r"PANIC: double fault")
"""A panic followed by the report of the same fault (arch/x86/kernel/doublefault_32.c and traps.c)."""

_INTERRUPTED = re.compile(r"Kernel panic - not syncing: NMI: Not continuing")
_INIT = re.compile(r"Attempted to kill init! exitcode=0x([0-9a-f]{8})")
_COMMAND = re.compile(r"PID: 1 Comm: (\S{1,15})")
_MEMORY = re.compile(r"deadlocked on memory|Out of memory")
_OTHERS_FAULT = re.compile(rf"{_MEMORY.pattern}|Attempted to kill init!|corrupted stack end")
"""Panics whose call trace shows who noticed: lack of memory, the end of process 1, an overwritten stack."""
_SENTENCE = re.compile(r"(?:Kernel panic - not syncing: |PANIC: )(?P<sentence>.{1,160})")


@dataclass(frozen=True)
class Panic:
    """A panic: the kernel's sentence, the function to blame, and the lines to quote.

    ``is_of_memory``: the guest had too little memory. ``is_idle``: the CPU was waiting for work.
    """

    sentence: str
    culprit: str | None
    lines: tuple[str, ...]
    is_of_memory: bool = False
    is_idle: bool = False


def panic_among(reports: Iterable[KernelReport]) -> Panic | None:
    """The first panic among a kernel's reports, with the reports that led to it; None if there is none."""
    before: KernelReport | None = None
    story: list[KernelReport] = []
    for report in reports:
        if story:
            story.append(report)
            break
        if report.trouble is Trouble.PANIC:
            story = [report]
            if before is not None and _led_to(before, report):
                story.insert(0, before)
            elif not _PRECEDES.search(_sign(report)):
                break
        before = report
    if not story:
        return None
    panic = next(report for report in story if report.trouble is Trouble.PANIC)
    is_of_memory = any(_MEMORY.search(_sign(report)) for report in story)
    # Blame a preceding report's function: the panic's call trace only shows who noticed.
    telling = [report for report in story if not (is_of_memory or _OTHERS_FAULT.search(_sign(report)))]
    culprit = next(filter(None, (culprit_of(report.lines) for report in telling)), None)
    lines = tuple(line for report in story for line in excerpt(report.lines, _REPORT_LINES))
    return Panic(
        sentence=_sentence(panic),
        culprit=culprit,
        lines=lines,
        is_of_memory=is_of_memory,
        is_idle=is_idle(panic.lines),
    )


def answers_interruption(report: KernelReport) -> bool:
    """Whether a report is the answer of a hanging guest's kernel to the lab's NMI."""
    return _INTERRUPTED.search(_sign(report)) is not None


def _led_to(before: KernelReport, panic: KernelReport) -> bool:
    sign = _sign(panic)
    if before.trouble is Trouble.WARNING and "panic_on_warn" not in sign:
        return False
    if _INIT.search(sign) and not any(_COMMAND.search(line) for line in before.lines):
        return False  # another process died of that oops
    return _FOLLOWS.search(sign) is not None


def _sentence(panic: KernelReport) -> str:
    """The kernel's reason for a panic; for an init that ended, how it ended."""
    init = _INIT.search(_sign(panic))
    if init is not None:
        command = next((found[1] for line in panic.lines if (found := _COMMAND.search(line))), "init")
        code = int(init[1], 16)  # a status as in wait(2)
        how = f"was killed by signal {code & 0x7F}" if code & 0x7F else f"ended with status {code >> 8 & 0xFF}"
        return f"process 1 ({command}) {how}"
    found = _SENTENCE.search(_sign(panic))
    return found["sentence"] if found is not None else "panic"


def _sign(report: KernelReport) -> str:
    return next((line for line in report.lines if _SENTENCE.search(line)), report.lines[0])


# Where the CPU of a hanging guest is: an NMI makes the kernel print it and panic.
#
# All guests boot with ``unknown_nmi_panic``. An NMI works even with interrupts off, and the kernel knows its modules'
# symbols.

_HANG_SILENCE = 2.0
"""Seconds without a new console line after which the kernel is done."""

_PAUSE = 0.02

_LOOKS = 3
_POINTER = re.compile(r"\b[ER]IP=([0-9a-f]{8,16})\b")
"""A CPU's instruction pointer in QEMU's `info registers` (target/i386/cpu-dump.c)."""


def interrupt(monitor: Monitor, process: Spawned, console: Console) -> str:
    """Send the guest an NMI, and wait until its kernel has printed where it was, or stays silent.

    The panic ends QEMU. If the kernel stays silent, as in a fault of its fault handler, returns the CPUs' places from
    QEMU, worded as the end of a sentence. Sends nothing if QEMU itself is stopped.
    """
    if process.poll() is not None or is_stopped(process.pid):
        return ""
    before = console.length()
    with contextlib.suppress(GuestError):  # QEMU is gone, or does not answer
        monitor.command("inject-nmi")
    for _ in console.printing(_HANG_SILENCE, lambda: process.poll() is not None):
        pass
    if process.poll() is not None or console.length() > before:
        return ""
    places: dict[str, None] = {}  # an ordered set
    with contextlib.suppress(GuestError):
        for _ in range(_LOOKS):
            places |= dict.fromkeys(_POINTER.findall(monitor.human("info registers -a")))
            time.sleep(_PAUSE)
    return f"; it does not answer an NMI, and executes at {', '.join(places)}" if places else ""


def is_stopped(process: int) -> bool:
    """Whether a process is stopped by a signal or tracer."""
    return stat_fields(process)[:1] in (["T"], ["t"])


# Replacing a channel's error (silence, a broken connection) by its cause: a panic of the kernel, or QEMU's end.

DYING_LIMIT = 5.0
"""Seconds that QEMU may take to end after its guest."""

MORE_MEMORY = "give the guest more memory: `memory:` of a machine in an experiment, --memory"

_SOON = 0.2
_REPORT_LINES = 20
_QUOTED_REPORTS = 3

_VICTIM = re.compile(r"Out of memory: Killed process \d+ \(([^)]{1,64})\)")
_ORDERED = re.compile(r"reboot: |sysrq: Resetting")
"""Printed by a kernel told to restart or power off (kernel/reboot.c, drivers/tty/sysrq.c)."""
_TERMINATED = re.compile(r": terminating on signal \d")
"""Printed by QEMU before it exits with status 0 on SIGTERM, SIGINT or SIGHUP (system/runstate.c)."""


def cause_of(error: GuestError, doing: str, console: Console, messages: Path, process: Spawned | None) -> GuestError:
    """The error to raise instead of ``error``, which a channel or the monitor raised while ``doing`` something.

    ``messages`` is the file of QEMU's messages; ``process`` is QEMU, None before its start and after its end.
    Returns ``error`` itself if the guest is alive.
    """
    if isinstance(error, GuestRefusal):
        return error
    if isinstance(error, GuestHang):
        return _panic(doing, console) or _hang(error, doing, console, process)
    if isinstance(error, GuestConnectionLost) or (process is not None and exit_status(process, _SOON) is not None):
        return _lost(error.what, doing, console, messages, process)
    return error


def trouble_of(reports: Sequence[KernelReport], log: Path) -> GuestOops | GuestPanic:
    """The error for a kernel's reports: a panic if there is one, else the first lines of the first reports.

    A panic's error names the console's ``log``, as nothing else is left of the guest.
    """
    panic = panic_among(reports)
    if panic is not None:
        return _panicked(panic, "", str(log))
    kinds = ", ".join(dict.fromkeys(map(_kind, reports)))
    detail = [line for report in reports[:_QUOTED_REPORTS] for line in excerpt(report.lines, _REPORT_LINES)]
    further = len(reports) - _QUOTED_REPORTS
    if further > 0:
        detail.append(f"({further} further report{'s' if further > 1 else ''})")
    hint = MORE_MEMORY if any(report.trouble is Trouble.MEMORY for report in reports) else ""
    return GuestOops(f"the guest's kernel reported trouble ({kinds})", detail=detail, hint=hint)


def _kind(report: KernelReport) -> str:
    culprit = culprit_of(report.lines)
    if report.trouble is Trouble.MEMORY:
        victim = _VICTIM.search(report.lines[0])
        return f"{report.trouble}: {victim[1]} was killed" if victim is not None else report.trouble
    return f"{report.trouble} in {culprit}" if culprit is not None else report.trouble


def _panic(doing: str, console: Console) -> GuestPanic | None:
    panic = panic_among(console.reports())
    # A kernel that has panicked ignores the NMI; if it answers, a program printed what looks like a panic.
    if panic is None or any(map(answers_interruption, console.reports())):
        return None
    return _panicked(panic, f" while {doing}", str(console.path))


def _panicked(panic: Panic, doing: str, where: str) -> GuestPanic:
    place = f" in {panic.culprit}" if panic.culprit is not None else ""
    hint = MORE_MEMORY if panic.is_of_memory else ""
    what = f"the guest's kernel panicked{place}{doing}: {panic.sentence}"
    return GuestPanic(what, where=where, detail=panic.lines, hint=hint)


def _hang(error: GuestHang, doing: str, console: Console, process: Spawned | None) -> GuestHang:
    place, hint = "", error.hint or "its kernel may be spinning with interrupts off; see the console's log"
    # The kernel has not panicked except by the lab's NMI: a program printed anything else that looks like a panic.
    before = next((report for report in console.reports() if report.trouble is not Trouble.PANIC), None)
    answer = next(filter(answers_interruption, console.reports()), None)
    interruption = None if answer is None else panic_among([answer])
    if process is not None and is_stopped(process.pid):
        place, hint = "; QEMU is stopped (by SIGSTOP or a debugger)", f"kill -CONT {process.pid}"
    elif interruption is not None and interruption.is_idle:
        place, hint = "; its CPU is idle", error.hint or "the command waits for something"
    elif interruption is not None and interruption.culprit is not None:
        place, hint = f"; its CPU is in {interruption.culprit}", error.hint
    if before is not None:
        place += f"; its kernel had reported trouble ({_kind(before)})"
    quoted = [
        *(excerpt(before.lines, _REPORT_LINES) if before is not None else ()),
        *(excerpt(interrupted_at(answer.lines), _REPORT_LINES) if answer is not None else ()),
    ]
    return GuestHang(
        f"the guest hangs ({doing}): {error.what}{place}",
        where=str(console.path),
        detail=quoted or console.last_lines(),
        hint=hint,
    )


def _lost(why: str, doing: str, console: Console, messages: Path, process: Spawned | None) -> GuestError:
    status = exit_status(process, DYING_LIMIT) if process is not None else None
    where, lines, printed = str(console.path), console.last_lines(), Console(messages).last_lines(QUOTED_LINES)
    was_killed = status is not None and status < 0
    was_terminated, was_ordered = any(map(_TERMINATED.search, printed)), status == 0 and _ends_in_order(lines)
    # No panic ends in these ways: a program printed what looks like one.
    panic = None if was_killed or was_terminated or was_ordered else _panic(doing, console)
    if panic is not None:
        return panic
    if status is None:
        what = f"lost the connection to the guest while {doing}: {why}; QEMU is still running"
        return GuestConnectionLost(what, where=where, detail=lines)
    hint = "QEMU's messages come first above, then the console's last lines"
    if was_terminated:
        hint = "another program or a person ended it: QEMU's messages come first above"
    elif was_ordered:
        hint = "the guest restarted, or switched itself off: see the console's last lines"
    elif status == 0:
        hint = "the guest reset itself silently, as after a triple fault: a broken stack or interrupt table"
    ended = GuestExit(
        f"QEMU ended ({how_ended(status)}) while {doing}",
        where=where,
        detail=[*printed, *lines] or ["(no output)"],
        hint=hint,
    )
    ended.status = status
    return ended


def _ends_in_order(lines: Sequence[str]) -> bool:
    """Whether the kernel was told to end, and did not panic over it."""
    ordered = max((number for number, line in enumerate(lines) if _ORDERED.search(line)), default=len(lines))
    return ordered < len(lines) and not any(sign_in(line) is Trouble.PANIC for line in lines[ordered:])


# The taint mask of a guest's kernel: sticky bits that record events since boot.

_FILE = "/proc/sys/kernel/tainted"
_QUOTED = 40

_TROUBLE = {
    1: "a module was loaded by force",
    3: "a module was unloaded by force",
    4: "a machine check",
    5: "a bad page",
    7: "an oops or a BUG",
    9: "a warning",
    14: "a soft lockup",
}
"""The bits that mean trouble, from Documentation/admin-guide/tainted-kernels.rst. Others describe modules (P, C, O, E,
K, N, X, T, J), firmware (A, I), the CPU (S) and users' requests (U)."""

_REPORTED = frozenset({5, 7, 9, 14})
"""The bits that accompany a report on the console."""


def troubles(before: int, after: int, *, has_reported: bool) -> list[str]:
    """The troubles between two readings; if the kernel ``has_reported``, without those that accompany reports."""
    new = {bit for bit in _TROUBLE if (after & ~before) >> bit & 1}
    return [_TROUBLE[bit] for bit in sorted(new - _REPORTED if has_reported else new)]


def taint_mask(guest: Guest) -> int:
    """The current mask. Raises GuestError if it cannot be read or is not a number."""
    text = kernel_value(guest, _FILE)
    mask = whole_number(text)
    if mask is None:
        raise GuestError(f"the guest's kernel has no number for its taint: {text[:_QUOTED]!r}", where=_FILE)
    return mask


# Whether the OOM killer has ended QEMU. Any user may read the count of such kills; the log may be root's alone.
#
# The count is that of the lab's control group: ``memory.events`` (version 2), ``memory.oom_control`` (version 1). A
# host without such groups counts all processes in ``/proc/vmstat``. All three came with Linux 4.13.

_HOST = Path("/proc/vmstat")
_COUNT = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def memory_kills() -> int | None:
    """The number of processes that the OOM killer has killed; None if it is not counted."""
    own = [files[0] for files in memory_files("memory.oom_control", "memory.events")]
    for file in (*own, _HOST):
        try:
            counted = _COUNT.search(file.read_text())
        except OSError:  # not mounted, or the root group, which lacks the file
            continue
        if counted is not None:
            return int(counted[1])
    return None


def explain_kill(ended: GuestExit, before: int | None) -> None:
    """If QEMU was killed, explain by whom in the hint; ``before`` is the count of kills before its start."""
    if ended.status != -signal.SIGKILL:
        return
    now = memory_kills()
    if before is None or now is None or now <= before:
        ended.hint = "another program or a person killed it; the system killed no process for lack of memory"
        if now is None:
            ended.hint = "the system may have killed it for lack of memory, which it does not count here; see its log"
    else:
        ended.hint = (
            "the system has killed processes for lack of memory meanwhile: free some, run fewer guests in parallel"
            " (--jobs), or give this one less"
        )


# Detecting that the kernel's boot stub refused the CPU. It prints why and halts (arch/x86/boot/main.c, cpu.c).
#
# It prints through the BIOS, before it parses console=. QEMU's qboot prints on the serial port; SeaBIOS prints on a
# screen, which the guest lacks. Then only the CPU's state shows it: halted in real mode outside of the BIOS.

_STUB_SILENCE = 5.0
"""Seconds without console output after which the CPU is examined; a kernel prints within three."""

_LAST_WORDS = "Unable to boot - please use a kernel appropriate for your CPU."
_REASON = "This kernel requires "

# x86_cpu_dump_state() of QEMU 7.2 and 10.0, target/i386/cpu-dump.c.
_HALTED = re.compile(r"\bHLT=1\b")
_SEGMENT = re.compile(r"^CS =[0-9a-f]{4} (?P<base>[0-9a-f]{8})", re.MULTILINE)
_CONTROL = re.compile(r"\bCR0=(?P<bits>[0-9a-f]{8})")
_PROTECTED = 0x1
_BIOS = 0xC0000
"""Where ROMs begin. The stub is in RAM below; a BIOS waiting for an interrupt in real mode is above."""


class BootStub:
    """The boot stub of a booting guest's kernel."""

    def __init__(self, monitor: Monitor, console: Console, cpu: str) -> None:
        self._monitor, self._console, self._cpu = monitor, console, cpu
        self._silence = Deadline(_STUB_SILENCE)

    def check(self) -> None:
        """Raise UnsupportedError if the stub has refused the CPU."""
        lines = self._console.last_lines()
        said = any(_LAST_WORDS in line for line in lines)
        if not said and (lines or self._silence.left()):
            return
        self._silence = Deadline(_STUB_SILENCE)
        try:
            if not is_stopped_stub(self._monitor.human("info registers")):
                return  # a program may have printed these words
        except GuestError:  # QEMU has ended or is stopped; the wait for the agent reports it
            return
        why = _reason(lines) if said else "its boot stub has stopped silently, as it does for a CPU that it refuses"
        raise UnsupportedError(
            f"the kernel does not boot on CPU '{self._cpu}': {why}",
            where=str(self._console.path) if said else "",
            detail=lines,
            hint="use another CPU (`cpu:` of a machine in an experiment, --cpu) or another kernel",
        )


def is_stopped_stub(registers: str) -> bool:
    """Whether a CPU has halted in a boot stub, from the output of ``info registers``."""
    segment, control = _SEGMENT.search(registers), _CONTROL.search(registers)
    if segment is None or control is None or _HALTED.search(registers) is None:
        return False
    return not int(control["bits"], 16) & _PROTECTED and int(segment["base"], 16) < _BIOS


def _reason(lines: list[str]) -> str:
    """The stub's message as one sentence; it prints missing features on a separate line."""
    said = [line.strip() for line in lines[: next(n for n, line in enumerate(lines) if _LAST_WORDS in line)]]
    first = next((n for n, line in enumerate(said) if line.startswith(_REASON)), None)
    return "it does not say why" if first is None else " ".join(said[first:]).rstrip(".")
