# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's panic, and what led to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.guest.guilty import guilty_function, is_idle
from orchestrator.guest.kernel_reports import KernelReport, Trouble, excerpt

_QUOTED_LINES = 20

_FOLLOWS = re.compile(
    r"Kernel panic - not syncing: (?:Fatal exception|panic_on_\w+ set|softlockup: hung tasks|hung_task: blocked tasks|"
    r"Hard LOCKUP|RCU Stall|System is deadlocked on memory|Out of memory|Aiee, killing interrupt handler|"
    r"Attempted to kill init|Attempted to kill the idle task|corrupted stack end)|panic_on_warn set"
)
"""Panics that a report before them has led to."""

_PRECEDES = re.compile(r"PANIC: double fault")
"""The one that a report follows, of the same fault (arch/x86/kernel/doublefault_32.c and traps.c)."""

_INTERRUPTED = re.compile(r"Kernel panic - not syncing: NMI: Not continuing")
_INIT = re.compile(r"Attempted to kill init! exitcode=0x([0-9a-f]{8})")
_COMMAND = re.compile(r"PID: 1 Comm: (\S{1,15})")
_MEMORY = re.compile(r"deadlocked on memory|Out of memory")
_OTHERS_FAULT = re.compile(rf"{_MEMORY.pattern}|Attempted to kill init!|corrupted stack end")
"""Panics whose call trace is of who noticed: that memory is lacking, process 1 has ended, a stack was overwritten."""
_SENTENCE = re.compile(r"(?:Kernel panic - not syncing: |PANIC: )(?P<sentence>.{1,160})")


@dataclass(frozen=True)
class Panic:
    """A panic: what the kernel says of it, the function to blame, and the lines to quote.

    ``is_of_memory`` where the guest had too little. ``is_interruption`` for one that the lab has asked for with an NMI,
    ``is_idle`` where the CPU was waiting for work then.
    """

    sentence: str
    guilty: str | None
    lines: tuple[str, ...]
    is_of_memory: bool = False
    is_interruption: bool = False
    is_idle: bool = False


def panic_among(reports: Iterable[KernelReport]) -> Panic | None:
    """The first panic among a kernel's reports, and what led to it; None where there is none."""
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
    # Where a report led to it, that one has the function; the call trace of the panic is of who noticed.
    telling = [report for report in story if not (is_of_memory or _OTHERS_FAULT.search(_sign(report)))]
    guilty = next(filter(None, (guilty_function(report.lines) for report in telling)), None)
    lines = tuple(line for report in story for line in excerpt(report.lines, _QUOTED_LINES))
    return Panic(
        sentence=_sentence(panic),
        guilty=guilty,
        lines=lines,
        is_of_memory=is_of_memory,
        is_interruption=answers_interruption(panic),
        is_idle=is_idle(panic.lines),
    )


def answers_interruption(report: KernelReport) -> bool:
    """Whether a report is what the kernel of a guest that hangs has answered to the lab's NMI."""
    return _INTERRUPTED.search(_sign(report)) is not None


def _led_to(before: KernelReport, panic: KernelReport) -> bool:
    sign = _sign(panic)
    if before.trouble is Trouble.WARNING and "panic_on_warn" not in sign:
        return False
    if _INIT.search(sign) and not any(_COMMAND.search(line) for line in before.lines):
        return False  # another process died of it
    return _FOLLOWS.search(sign) is not None


def _sentence(panic: KernelReport) -> str:
    """What the kernel says of it; for an init that ended, how."""
    init = _INIT.search(_sign(panic))
    if init is not None:
        command = next((found[1] for line in panic.lines if (found := _COMMAND.search(line))), "init")
        code = int(init[1], 16)  # as wait(2) has it
        how = f"was killed by signal {code & 0x7F}" if code & 0x7F else f"ended with status {code >> 8 & 0xFF}"
        return f"process 1 ({command}) {how}"
    found = _SENTENCE.search(_sign(panic))
    return found["sentence"] if found is not None else "panic"


def _sign(report: KernelReport) -> str:
    """The line that the report's kind was known by."""
    return next((line for line in report.lines if _SENTENCE.search(line)), report.lines[0])
