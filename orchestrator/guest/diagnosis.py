# SPDX-License-Identifier: GPL-2.0-only
"""Why did a guest fail? The kernel's panic or QEMU's end, where a channel only sees silence or a broken connection."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import GuestConnectionLost, GuestError, GuestExit, GuestHang, GuestOops, GuestPanic
from orchestrator.guest.console import REPORTS_MAX, Console
from orchestrator.guest.guilty import guilty_function
from orchestrator.guest.hang import is_stopped
from orchestrator.guest.kernel_reports import KernelReport, Trouble
from orchestrator.guest.panic import Panic, answers_interruption, panic_among
from orchestrator.process import Spawned, exit_status

DYING_LIMIT = 5.0
"""Seconds that QEMU may take to end after its guest has ended."""

MORE_MEMORY = "give the guest more memory: `memory:` of a machine in an experiment, --memory"

_SOON = 0.2
_QUOTED_LINES = 10
_REPORT_LINES = 20
_QUOTED_REPORTS = 3

_VICTIM = re.compile(r"Out of memory: Killed process \d+ \(([^)]{1,64})\)")
_ORDERED = re.compile(r"reboot: |sysrq: Resetting")
"""What a kernel prints when it was told to restart or power off (kernel/reboot.c, drivers/tty/sysrq.c)."""


def cause_of(error: GuestError, doing: str, console: Console, messages: Path, process: Spawned | None) -> GuestError:
    """The error to raise for ``error``, which a channel or the monitor raised while ``doing`` something.

    ``messages`` is the file of QEMU's messages; ``process`` is QEMU, None before its start and after its end.
    An error of a guest that lives is returned as it is.
    """
    if isinstance(error, GuestHang):
        return _panic(doing, console) or _hang(error, doing, console, process)
    if isinstance(error, GuestConnectionLost):
        return _lost(error.what, doing, console, messages, process)
    if process is not None and exit_status(process, _SOON) is not None:
        return _lost(error.what, doing, console, messages, process)
    return error


def trouble_of(reports: Sequence[KernelReport], where: str = "") -> GuestOops | GuestPanic:
    """The error for what a kernel reported: of a panic, else the first lines of the first reports."""
    panic = panic_among(reports)
    if panic is not None:
        return _panicked(panic, "", where)
    kinds = ", ".join(dict.fromkeys(map(_kind, reports)))
    detail = [line for report in reports[:_QUOTED_REPORTS] for line in report.lines[:_REPORT_LINES]]
    further = len(reports) - _QUOTED_REPORTS
    if further > 0:
        detail.append(f"({further} further report{'s' if further > 1 else ''})")
    hint = MORE_MEMORY if any(report.trouble is Trouble.MEMORY for report in reports) else ""
    return GuestOops(f"the guest's kernel reported trouble ({kinds})", where=where, detail=detail, hint=hint)


def _kind(report: KernelReport) -> str:
    guilty = guilty_function(report.lines)
    if report.trouble is Trouble.MEMORY:
        victim = _VICTIM.search(report.lines[0])
        return f"{report.trouble}: {victim[1]} was killed" if victim is not None else report.trouble
    return f"{report.trouble} in {guilty}" if guilty is not None else report.trouble


def _panic(doing: str, console: Console) -> GuestPanic | None:
    reports = list(itertools.islice(console.reports(), REPORTS_MAX))
    panic = panic_among(reports)
    # A kernel that has panicked answers no NMI: a program has printed what looks like a panic then.
    if panic is None or any(map(answers_interruption, reports)):
        return None
    return _panicked(panic, f" while {doing}", str(console.path))


def _panicked(panic: Panic, doing: str, where: str) -> GuestPanic:
    place = f" in {panic.guilty}" if panic.guilty is not None else ""
    hint = MORE_MEMORY if panic.is_of_memory else ""
    what = f"the guest's kernel panicked{place}{doing}: {panic.sentence}"
    return GuestPanic(what, where=where, detail=panic.lines, hint=hint)


def _hang(error: GuestHang, doing: str, console: Console, process: Spawned | None) -> GuestHang:
    """The error for a guest that does not answer; its kernel may have said where, when it was interrupted."""
    place, hint = "", error.hint or "its kernel may be spinning with interrupts off; see the console's log"
    reports = list(itertools.islice(console.reports(), REPORTS_MAX))
    before = next((report for report in reports if not answers_interruption(report)), None)
    interruption = panic_among(filter(answers_interruption, reports))
    if process is not None and is_stopped(process.pid):
        place, hint = "; QEMU is stopped (by SIGSTOP or a debugger)", f"kill -CONT {process.pid}"
    elif interruption is not None and interruption.is_idle:
        place, hint = "; its CPU is idle", error.hint or "what was asked of it waits for something"
    elif interruption is not None and interruption.guilty is not None:
        place, hint = f"; its CPU is in {interruption.guilty}", error.hint
    if before is not None:
        place += f"; its kernel had reported trouble ({_kind(before)})"
    quoted = [*(before.lines[:_REPORT_LINES] if before else ()), *(interruption.lines if interruption else ())]
    return GuestHang(
        f"the guest hangs ({doing}): {error.what}{place}",
        where=str(console.path),
        detail=quoted or console.last_lines(),
        hint=hint,
    )


def _lost(why: str, doing: str, console: Console, messages: Path, process: Spawned | None) -> GuestError:
    status = exit_status(process, DYING_LIMIT) if process is not None else None
    panic = _panic(doing, console)
    if panic is not None:
        return panic
    where, lines = str(console.path), console.last_lines()
    if status is None:
        what = f"lost the connection to the guest while {doing}: {why}; QEMU is still running"
        return GuestConnectionLost(what, where=where, detail=lines)
    printed = Console(messages).last_lines(_QUOTED_LINES)
    how = f"status {status}" if status >= 0 else f"signal {-status}"
    hint = "QEMU's messages come first above, then the console's last lines"
    if status == 0 and any(_ORDERED.search(line) for line in lines):
        hint = "the guest restarted, or switched itself off: see the console's last lines"
    elif status == 0:
        hint = "the guest reset itself without a word, as after a triple fault: a broken stack or interrupt table"
    ended = GuestExit(
        f"QEMU ended ({how}) while {doing}", where=where, detail=[*printed, *lines] or ["(no output)"], hint=hint
    )
    ended.status = status
    return ended
