# SPDX-License-Identifier: GPL-2.0-only
"""What trouble does a kernel report among the lines of its console? The signs are those of Linux 6.1."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.errors import UsageError

REPORT_LINES = 60
"""Lines of one report at most; an oops of 6.1 with a deep call trace has about 50."""

LINE_CHARACTERS = 4096
"""Characters quoted of a line; the kernel's own have 1 KB (LOG_LINE_MAX of kernel/printk/printk.c)."""

_OOPS_DISTANCE = 10
"""Lines from the sentence about a fault to the numbered line that belongs to it ("Oops: 0000 [#1]"), at most."""

_BEGINNING = r"(?:^|\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? )"
"""Where a kernel message begins: behind its time stamp, which may itself stand behind a line that user space began.

With CONFIG_PRINTK_CALLER the thread or CPU follows the time stamp."""

_STAMP = re.compile(r"\[ *\d+\.\d{6}\](?P<caller>\[ *[TC]\d+\])? ")

_CALLERS_MAX = 64
"""Callers whose reports are put together at a time."""

_NUMBERED = r"[\w ,.:()/-]{1,120}: [0-9a-f]{4} \[#\d+\]"
"""The line that die() prints for every exception of the kernel's own (arch/x86/kernel/dumpstack.c)."""


class Trouble(StrEnum):
    """What a kernel can report, the worst last."""

    WARNING = "warning"
    STALL = "stall"
    MEMORY = "out of memory"
    OOPS = "oops"
    PANIC = "panic"


RANK = {trouble: rank for rank, trouble in enumerate(Trouble)}

_SIGNS = {
    Trouble.PANIC: r"Kernel panic - not syncing|(?:traps: )?PANIC: double fault",
    Trouble.OOPS: rf"BUG: |BUG [\w-]+ \([^)]{{1,60}}\): |\[ BUG: |UBSAN: |Oops:|kernel BUG at|{_NUMBERED}|"
    r"general protection fault|divide error: |invalid opcode: |double fault: |stack segment: |int3: ",
    # mm/oom_kill.c; a control group that is out of memory ("Memory cgroup out of memory") is its owner's affair.
    Trouble.MEMORY: r"Out of memory: Killed process|Out of memory and no killable processes",
    Trouble.STALL: r"(?:rcu: )?INFO: \w+ (?:self-)?detected (?:expedited )?stall|watchdog: BUG: soft lockup|"
    r"(?:(?:NMI )?watchdog: )?(?:CPU\d+: )?Watchdog detected hard LOCKUP|INFO: task .{1,60} blocked for more than",
    # Behind "WARNING: CPU" come WARN() and its like; the rest is lockdep (kernel/locking/lockdep.c).
    Trouble.WARNING: r"WARNING: CPU: \d+ PID:|WARNING: possible (?:circular|recursive|irq lock inversion)|"
    r"WARNING: inconsistent lock state|WARNING: \S+-safe -> \S+-unsafe lock order|WARNING: chain_key collision|"
    r"WARNING: Nested lock was not taken|WARNING: bad (?:unlock balance|contention) detected|"
    r"WARNING: held lock freed|WARNING: .{1,60} still has locks held|WARNING: suspicious RCU usage|"
    r"WARNING: lock held when returning to user space|INFO: trying to register non-static key|"
    # mm/page_alloc.c and mm/kmemleak.c.
    r".{1,64}: page allocation failure: order:|kmemleak: \d+ new suspected memory leaks",
}
_SIGN = re.compile(_BEGINNING + "(?:" + "|".join(f"(?P<{kind.name}>{signs})" for kind, signs in _SIGNS.items()) + ")")
_NUMBERED_SIGN = re.compile(_BEGINNING + _NUMBERED)
_CUT = re.compile(_BEGINNING + r"-+\[ cut here \]-+")
_TRACE = re.compile(_BEGINNING + "Call Trace:")
_TRACE_LINES = 8
"""Lines of a call trace that an excerpt has rather than registers: its heading, <TASK>, and frames."""
_REGISTERS = re.compile(_BEGINNING + r"(?:Code|R(?:SP|AX|DX|BP|10|13)|E(?:AX|SI)|[CDF]S|[CD]R\d|PKRU): ")
"""Lines of __show_regs() and show_opcodes() (arch/x86/kernel) other than that of the instruction pointer."""
_END = re.compile(_BEGINNING + r"---\[ end (?:trace|Kernel panic)")


@dataclass(frozen=True)
class KernelReport:
    """One report: its kind and its lines, from its first sign (or the "cut here" above) to its end or to a limit."""

    trouble: Trouble
    lines: tuple[str, ...]

    def is_expected(self, patterns: Sequence[re.Pattern[str]]) -> bool:
        """Whether one of the patterns is found in its text."""
        text = "\n".join(self.lines)
        return any(pattern.search(text) for pattern in patterns)


def excerpt(lines: Sequence[str], most: int) -> Sequence[str]:
    """The first lines of a report, at most so many; a call trace that they would cut off goes before registers."""
    trace = next((number for number, line in enumerate(lines) if _TRACE.search(line)), len(lines))
    if trace == len(lines) or trace + min(_TRACE_LINES, len(lines) - trace) <= most:
        return lines[:most]
    return [*(line for line in lines[:trace] if not _REGISTERS.search(line)), *lines[trace:]][:most]


def report_patterns(regexes: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns of reports that are expected. Raises UsageError for one that is wrong, or allows every report."""
    patterns = []
    for regex in regexes:
        try:
            pattern = re.compile(regex, re.MULTILINE)
        except (re.error, TypeError, OverflowError, RecursionError) as error:
            raise UsageError(f"{regex!r} is no regular expression: {error}") from None
        if pattern.search(""):
            raise UsageError(f"{regex!r} would allow every report", hint="write '.' if that is meant")
        patterns.append(pattern)
    return tuple(patterns)


def sign_in(line: str) -> Trouble | None:
    """The trouble that a line is a sign of."""
    found = _SIGN.search(line)
    return Trouble[str(found.lastgroup)] if found is not None else None


def reports_in(lines: Iterable[str]) -> Iterator[KernelReport]:
    """The reports in a console's lines, in their order.

    A report ends at its end mark, where its caller's next begins, and after ``REPORT_LINES``; one about memory is one
    line. What a program or another caller prints in between is no part of it. User space can print on the console as
    well, so a report is a reason to look, not a proof.
    """
    readers: dict[str | None, _Reader] = {}
    for line in lines:
        caller = _caller(line)
        if caller not in readers:
            if len(readers) == _CALLERS_MAX:
                yield from readers.pop(next(iter(readers))).rest()
            readers[caller] = _Reader()
        yield from readers[caller].take(line)
    for reader in readers.values():
        yield from reader.rest()


def _caller(line: str) -> str | None:
    """Who printed a line: a thread or a CPU, "" where the kernel does not say; None for a line without a time stamp."""
    found = _STAMP.search(line)
    return found["caller"] or "" if found is not None else None


class _Reader:
    """Puts the lines of one caller's reports together."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._trouble: Trouble | None = None
        self._is_numbered = False

    def take(self, line: str) -> Iterator[KernelReport]:
        """The reports that end with this line, or before it."""
        sign, is_numbered = sign_in(line), _NUMBERED_SIGN.search(line) is not None
        if (
            is_numbered
            and self._trouble is Trouble.OOPS
            and not self._is_numbered
            and len(self._lines) <= _OOPS_DISTANCE
        ):
            sign = None  # "BUG: ..." has begun this report
        is_cut = _CUT.search(line) is not None
        if self._trouble is not None and (is_cut or sign is not None):
            yield from self.rest()
        if is_cut:  # above what WARN() was given to say, which is above the sign
            self._lines = []
        elif sign is not None:
            self._trouble, self._is_numbered = sign, False
        elif not self._lines:
            return
        self._is_numbered = self._is_numbered or is_numbered
        self._lines.append(line[:LINE_CHARACTERS])
        # What is above the sentence about memory is a list of all processes, and below it nothing.
        if _END.search(line) or len(self._lines) >= REPORT_LINES or self._trouble is Trouble.MEMORY:
            yield from self.rest()

    def rest(self) -> Iterator[KernelReport]:
        """The report that was begun."""
        if self._trouble is not None:
            yield KernelReport(self._trouble, tuple(self._lines))
        self._lines, self._trouble = [], None
