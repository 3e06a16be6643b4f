# SPDX-License-Identifier: GPL-2.0-only
"""A panic of a guest's kernel, as its console tells it: the sentence, the quoted lines, and what led to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator.guest.blame import culprit_of, is_idle
from orchestrator.guest.kernel_reports import KernelReport, Trouble, excerpt

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
    lines = tuple(line for report in story for line in excerpt(report.lines, REPORT_LINES))
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
        command = next((match[1] for line in panic.lines if (match := _COMMAND.search(line))), "init")
        code = int(init[1], 16)  # a status as in wait(2)
        how = f"was killed by signal {code & 0x7F}" if code & 0x7F else f"ended with status {code >> 8 & 0xFF}"
        return f"process 1 ({command}) {how}"
    match = _SENTENCE.search(_sign(panic))
    return match["sentence"] if match is not None else "panic"


def _sign(report: KernelReport) -> str:
    return next((line for line in report.lines if _SENTENCE.search(line)), report.lines[0])


REPORT_LINES = 20
