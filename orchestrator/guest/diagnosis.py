# SPDX-License-Identifier: GPL-2.0-only
"""Why did a guest fail? The kernel's panic or QEMU's end, where a channel only sees silence or a broken connection."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from orchestrator.errors import GuestConnectionLost, GuestError, GuestExit, GuestHang, GuestOops, GuestPanic
from orchestrator.guest.console import Console
from orchestrator.guest.kernel_reports import KernelReport, Trouble
from orchestrator.process import exit_status

DYING_LIMIT = 5.0
"""Seconds that QEMU may take to end after its guest has ended."""

_SOON = 0.2
_QUOTED_LINES = 10
_REPORT_LINES = 20
_QUOTED_REPORTS = 3

Process = subprocess.Popen[bytes]


def cause_of(error: GuestError, doing: str, console: Console, messages: Path, process: Process | None) -> GuestError:
    """The error to raise for ``error``, which a channel or the monitor raised while ``doing`` something.

    ``messages`` is the file of QEMU's messages; ``process`` is QEMU, None before its start and after its end.
    An error of a guest that lives is returned as it is.
    """
    if isinstance(error, GuestHang):
        return _panic(doing, console) or _hang(error, doing, console)
    if isinstance(error, GuestConnectionLost):
        return _lost(error.what, doing, console, messages, process)
    if process is not None and exit_status(process, _SOON) is not None:
        return _lost(error.what, doing, console, messages, process)
    return error


def trouble_of(reports: Sequence[KernelReport]) -> GuestOops:
    """The error for what a kernel reported and went on: the first lines of the first reports."""
    kinds = ", ".join(dict.fromkeys(report.trouble for report in reports))
    detail = [line for report in reports[:_QUOTED_REPORTS] for line in report.lines[:_REPORT_LINES]]
    further = len(reports) - _QUOTED_REPORTS
    if further > 0:
        detail.append(f"({further} further report{'s' if further > 1 else ''})")
    return GuestOops(f"the guest's kernel reported trouble ({kinds})", detail=detail)


def _panic(doing: str, console: Console) -> GuestPanic | None:
    trouble = console.trouble()
    if trouble is None or trouble[0] is not Trouble.PANIC:
        return None
    return GuestPanic(f"the guest's kernel panicked while {doing}", detail=trouble[1])


def _hang(error: GuestHang, doing: str, console: Console) -> GuestHang:
    return GuestHang(
        f"the guest hangs ({doing}): {error.what}",
        where=str(console.path),
        detail=console.last_lines(),
        hint=error.hint or "its kernel may be spinning with interrupts off; see the console's log",
    )


def _lost(why: str, doing: str, console: Console, messages: Path, process: Process | None) -> GuestError:
    status = exit_status(process, DYING_LIMIT) if process is not None else None
    panic = _panic(doing, console)
    if panic is not None:
        return panic
    where, lines = str(console.path), console.last_lines()
    if status is None:
        what = f"lost the connection to the guest while {doing}: {why}; QEMU is still running"
        return GuestConnectionLost(what, where=where, detail=lines)
    printed = messages.read_text(errors="replace").splitlines()[-_QUOTED_LINES:] if messages.exists() else []
    how = f"status {status}" if status >= 0 else f"signal {-status}"
    hint = "" if status == 0 else "QEMU's messages come first above, then the console's last lines"
    ended = GuestExit(
        f"QEMU ended ({how}) while {doing}", where=where, detail=[*printed, *lines] or ["(no output)"], hint=hint
    )
    ended.status = status
    return ended
