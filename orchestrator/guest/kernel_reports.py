# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's reports of trouble among a console's lines, recognised by the first lines in ``kernel_reports.yaml``.

A call trace with the message above it is a report as well, whether or not the catalogue knows its first line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, cast

from orchestrator.catalog.data import CatalogEntry, read
from orchestrator.errors import UsageError

REPORT_LINES = 60
"""Limit of lines of one report; an oops of 6.1 with a deep call trace has about 50."""

LINE_CHARACTERS = 4096
"""Limit of characters quoted of a line; the kernel's own have 1 KB (LOG_LINE_MAX of kernel/printk/printk.c)."""

FUNCTION = (
    r"(?P<name>[A-Za-z_]\w{0,511})(?:\.[\w.]{1,64})?\+0x[0-9a-f]{1,16}/0x[0-9a-f]{1,16}"
    r"(?: \[(?P<module>\w{1,64})(?: [0-9a-f]{1,64})?\])?"
)
"""A place in a function (%pS of lib/vsprintf.c). GCC may append ".cold", ".isra.0" or ".constprop.0" to the name of a
part or copy; CONFIG_STACKTRACE_BUILD_ID appends the build's identifier to the module."""

FRAME = re.compile(
    rf"(?:^|[\]>]) {{1,3}}(?:\[<[0-9a-f]{{1,16}}>\] )?{FUNCTION}(?: \(?[\w./+-]{{1,256}}:\d{{1,6}}[^\]]{{0,40}})?$"
)
"""A frame of a call trace, with its address (print_ip_sym()) or its source line (CONFIG_KALLSYMS_LINEINFO). With a
question mark, it is a word on the stack that may be the return address of an earlier call."""

_OOPS_DISTANCE = 10
"""Maximum of lines from the sentence about a fault to its numbered line ("Oops: 0000 [#1]")."""

_BEGINNING = r"(?:^(?:<\d>)?|\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? )"
"""The beginning of a kernel message: its time stamp, which may follow an unfinished line from user space.

With CONFIG_PRINTK_CALLER the thread or CPU comes after the time stamp."""

_STAMP = re.compile(r"\[ *(?P<time>\d{1,12}\.\d{6})\](?P<caller>\[ *[TC]\d+\])? ")

_CALLERS_MAX = 64
"""Limit of callers whose reports are assembled at a time."""

_LINES_BEFORE = 40
"""Lines kept that may belong to a following call trace; __show_regs() and the line of modules make some 20."""

_MESSAGE_LINES = 3
"""Limit of lines of a message above its last one; the kernel gives all of them the same time."""

_LAST_WORDS = 3
"""Lines after the call trace that end a report without a known first line."""

_MESSAGE_GAP = 0.01
"""Seconds from a message to the line of the same report below it; a guest of Linux 7.3 took 0.0001."""

_GAP = 1.0
"""Seconds between two lines of different reports."""

_Entries = list[dict[str, Any]]


class Trouble(StrEnum):
    """The kinds of trouble that a kernel reports."""

    WARNING = "warning"
    STALL = "stall"
    MEMORY = "out of memory"
    OOPS = "oops"
    PANIC = "panic"


class KnownReport(CatalogEntry):
    """A report known by its first line: a pattern for the line's beginning, and an example.

    ``is_alone``: the report is this one line, possibly within another one. ``is_below_message``: the line directly
    above may say what the report is about.
    """

    kind: Trouble
    what: str
    sign: str
    example: str
    is_alone: bool = False
    is_below_message: bool = False


@lru_cache(maxsize=1)
def known_reports() -> Sequence[KnownReport]:
    """The catalogue's reports, the worst first."""
    kinds = read("kernel_reports.yaml")
    return [
        KnownReport(kind=Trouble(kind), **entry) for kind, entries in kinds.items() for entry in cast(_Entries, entries)
    ]


@lru_cache(maxsize=1)
def _signs() -> re.Pattern[str]:
    return re.compile(f"{_BEGINNING}(?:{'|'.join(f'({known.sign})' for known in known_reports())})")


_NUMBERED_SIGN = re.compile(_BEGINNING + r"[\w ,.:()/-]{1,120}: [0-9a-f]{4} \[#\d+\]")

_CUT = re.compile(_BEGINNING + r"-+\[ cut here \]-+")

_TRACE = re.compile(_BEGINNING + "Call Trace:")

_TRACE_LINES = 8
"""Call trace lines that an excerpt prefers to registers: the heading, <TASK>, and frames."""

_REGISTERS = re.compile(_BEGINNING + r"(?:Code|R(?:SP|AX|DX|BP|10|13)|E(?:AX|SI)|[CDF]S|[CD]R\d|PKRU): ")
"""Lines of __show_regs() and show_opcodes() (arch/x86/kernel), except the instruction pointer's."""

_END = re.compile(_BEGINNING + r"---\[ end (?:trace|Kernel panic)")

_PREAMBLE = re.compile(
    rf"{_REGISTERS.pattern}|{_BEGINNING}(?:RIP: |EIP: |CPU: \d+ (?:UID: \d+ )?PID: |Tainted: \[|Hardware name: |"
    r"Workqueue: |Stopper: |Sched_ext: |Modules linked in:|Unloaded tainted modules|Preemption disabled at:|"
    r"\[<[0-9a-f]{8}|irq event stamp: |(?:hard|soft)irqs last )"
)
"""Lines above a call trace that do not give its reason (lib/dump_stack.c, __show_regs())."""

_STACK = re.compile(rf"{FRAME.pattern}|{_TRACE.pattern}|{_BEGINNING} {{1,3}}(?:\? |</?[A-Z]|0x[0-9a-f]{{8}})")

_ASKED_FOR = re.compile(
    _BEGINNING
    + r"(?:sysrq: |task:|NMI backtrace for cpu|Sending NMI|rcu: |stack backtrace:|.{1,64} invoked oom-killer: |"
    r"name \S{1,64}, interval \d+, probability |The following trace is a kernel self test)"
)
"""Messages above a call trace that is not trouble in itself: it was requested (SysRq, fault injection), or is part of a
report that another line begins."""


@dataclass(frozen=True)
class KernelReport:
    """One report: its kind, and its lines from the first sign (or the "cut here" above) to its end or a limit."""

    trouble: Trouble
    lines: tuple[str, ...]

    def is_expected(self, patterns: Sequence[re.Pattern[str]]) -> bool:
        text = "\n".join(self.lines)
        return any(pattern.search(text) for pattern in patterns)


def excerpt(lines: Sequence[str], most: int) -> Sequence[str]:
    """The first ``most`` lines of a report; its call trace takes precedence over registers."""
    trace = next((number for number, line in enumerate(lines) if _TRACE.search(line)), len(lines))
    if trace == len(lines) or trace + min(_TRACE_LINES, len(lines) - trace) <= most:
        return lines[:most]
    return [*(line for line in lines[:trace] if not _REGISTERS.search(line)), *lines[trace:]][:most]


def line_pattern(regex: str) -> re.Pattern[str]:
    """A pattern for a line or a text of several. Raises UsageError for an invalid one."""
    try:
        return re.compile(regex, re.MULTILINE)
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        raise UsageError(f"{regex!r} is not a regular expression: {error}") from None


def report_patterns(regexes: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Patterns of expected reports. Raises UsageError for an invalid one, or one that allows every report."""
    patterns = []
    for regex in regexes:
        pattern = line_pattern(regex)
        if pattern.search(""):
            raise UsageError(f"{regex!r} would allow every report", hint="write '.' if that is meant")
        patterns.append(pattern)
    return tuple(patterns)


def sign_in(line: str) -> Trouble | None:
    """The trouble that a line indicates."""
    known = _known(line)
    return None if known is None else known.kind


def is_dump(line: str) -> bool:
    """Whether a line shows registers or a stack rather than a message."""
    return _PREAMBLE.search(line) is not None or _STACK.search(line) is not None


def _known(line: str) -> KnownReport | None:
    match = _signs().search(line)
    return None if match is None or match.lastindex is None else known_reports()[match.lastindex - 1]


def reports_in(lines: Iterable[str]) -> Iterator[KernelReport]:
    """The reports in a console's lines, in order.

    A report ends at its end mark, at its caller's next report, or after ``REPORT_LINES``. A report about memory is one
    line. One without a known first line ends some lines after its call trace. Lines of programs and of other callers in
    between are left out. User space can print on the console too: a report is a reason to look, not a proof.
    """
    readers: dict[str | None, _Reader] = {}
    for line in lines:
        stamp = _STAMP.search(line)
        # The thread or CPU that printed it: "" if the kernel does not say, None without a time stamp.
        caller = None if stamp is None else stamp["caller"] or ""
        if caller not in readers:
            if len(readers) == _CALLERS_MAX:
                yield from readers.pop(next(iter(readers))).rest()
            readers[caller] = _Reader()
        yield from readers[caller].take(line)
    for reader in readers.values():
        yield from reader.rest()


class _Reader:
    """Assembles the reports of one caller."""

    def __init__(self) -> None:
        self._begin(None, ())

    def _begin(self, trouble: Trouble | None, lines: Sequence[str]) -> None:
        self._trouble = trouble
        self._lines = list(lines)  # of the report, or those that a call trace may be about
        self._is_cut = self._is_numbered = self._has_trace = False
        self._heading: int | None = None  # the line "Call Trace:" whose first frame is pending
        self._words: int | None = None  # lines after the call trace of a report without a known first line

    def take(self, line: str) -> Iterator[KernelReport]:
        """The reports that end at or before this line."""
        known = _known(line)
        if known is not None and known.is_alone:
            if self._words:
                yield from self.rest()
            yield KernelReport(known.kind, (line[:LINE_CHARACTERS],))
            return
        yield from self._look_for_beginning(line, known)
        self._lines.append(line[:LINE_CHARACTERS])
        yield from self._look_for_trace(self._lines[-1])
        is_end = "---[ end " in line and _END.search(line) is not None
        if is_end and self._is_cut:  # the first line is damaged, or unknown
            self._trouble = Trouble.WARNING
        # Above the sentence about memory is a list of all processes, and below it nothing.
        if is_end or self._trouble is Trouble.MEMORY or self._words == _LAST_WORDS:
            last = self._lines[-_LAST_WORDS:] if self._words else ()
            yield from self.rest()
            self._lines.extend(last)
        elif self._trouble is None and not self._is_cut and self._heading is None:
            del self._lines[:-_LINES_BEFORE]
        elif len(self._lines) >= REPORT_LINES:
            yield from self.rest()

    def _look_for_beginning(self, line: str, known: KnownReport | None) -> Iterator[KernelReport]:
        is_numbered = known is not None and known.kind is Trouble.OOPS and _NUMBERED_SIGN.search(line) is not None
        if (
            is_numbered
            and self._trouble is Trouble.OOPS
            and not self._is_numbered
            and len(self._lines) <= _OOPS_DISTANCE
        ):
            known = None  # "BUG: ..." already began this report
        is_cut = "[ cut here ]" in line and _CUT.search(line) is not None
        if self._trouble is not None and (is_cut or known is not None):
            yield from self.rest()
        if is_cut:  # followed by the text of WARN(), then by the sign
            self._begin(None, ())
            self._is_cut = True
        elif known is not None:
            self._begin(known.kind, self._lines if self._is_cut else self._message_of(line, known))
        self._is_numbered = self._is_numbered or is_numbered

    def _message_of(self, line: str, known: KnownReport) -> Sequence[str]:
        """The line directly above a report's first that says what it is about."""
        if not known.is_below_message or not self._lines or is_dump(self._lines[-1]):
            return ()
        above, match = _STAMP.search(self._lines[-1]), _STAMP.search(line)
        is_near = above and match and 0 <= float(match["time"]) - float(above["time"]) < _MESSAGE_GAP
        return self._lines[-1:] if is_near else ()

    def rest(self) -> Iterator[KernelReport]:
        if self._trouble is not None:
            yield KernelReport(self._trouble, tuple(self._lines))
        self._begin(None, ())

    def _look_for_trace(self, line: str) -> Iterator[KernelReport]:
        if "Call Trace:" in line and _TRACE.search(line):
            self._heading = len(self._lines) - 1
        elif self._heading is not None and FRAME.search(line):
            yield from self._add_trace(_message_above(self._lines, self._heading))
        elif self._words is not None:
            self._words = 0 if is_dump(line) else self._words + 1

    def _add_trace(self, message: int | None) -> Iterator[KernelReport]:
        """Add a call trace to the report, or begin a report of its own at its message."""
        self._heading = None
        if self._is_cut:
            self._trouble = Trouble.WARNING
        elif message is not None and (self._trouble is None or self._is_over(message)):
            lines = self._lines[message:]
            del self._lines[message:]
            yield from self.rest()
            self._begin(Trouble.WARNING, lines)
            self._words = 0
        self._has_trace = self._trouble is not None

    def _is_over(self, message: int) -> bool:
        """Whether the current report ended before a message above a call trace."""
        if message == 0:
            return False
        before, after = (_STAMP.search(line) for line in self._lines[message - 1 : message + 1])
        return self._has_trace or (
            before is not None and after is not None and float(after["time"]) - float(before["time"]) >= _GAP
        )


def _message_above(lines: Sequence[str], heading: int) -> int | None:
    """The first line of the message above a call trace; None if there is none, or it is not a report by itself."""
    last = heading - 1
    while last >= 0 and _PREAMBLE.search(lines[last]):
        last -= 1
    if last < 0:
        return 0
    if _STACK.search(lines[last]) or _ASKED_FOR.search(lines[last]):
        return None
    stamp = _STAMP.search(lines[last])
    for first in range(last, max(0, last - _MESSAGE_LINES), -1):
        if stamp is None or stamp[0] not in lines[first - 1] or is_dump(lines[first - 1]):
            return first
    return max(0, last - _MESSAGE_LINES)
