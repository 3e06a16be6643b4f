# SPDX-License-Identifier: GPL-2.0-only
"""Why a guest failed: a channel's error (silence, a broken connection) is replaced by its cause.

The cause is a panic of the kernel, a hang, or QEMU's end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import (
    GuestConnectionLost,
    GuestError,
    GuestExit,
    GuestHang,
    GuestOops,
    GuestPanic,
    GuestRefusal,
)
from orchestrator.guest.blame import culprit_of, interrupted_at
from orchestrator.guest.console import QUOTED_LINES, Console
from orchestrator.guest.interruption import is_stopped
from orchestrator.guest.kernel_reports import KernelReport, Trouble, excerpt, sign_in
from orchestrator.guest.panic import REPORT_LINES, Panic, answers_interruption, panic_among
from orchestrator.process import Spawned, exit_status, how_ended

DYING_LIMIT = 5.0
"""Seconds that QEMU may take to end after its guest."""

MORE_MEMORY = "give the guest more memory: `memory:` of a machine in an experiment, --memory"

_SOON = 0.2
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
    detail = [line for report in reports[:_QUOTED_REPORTS] for line in excerpt(report.lines, REPORT_LINES)]
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
        *(excerpt(before.lines, REPORT_LINES) if before is not None else ()),
        *(excerpt(interrupted_at(answer.lines), REPORT_LINES) if answer is not None else ()),
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
