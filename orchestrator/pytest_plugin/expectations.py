# SPDX-License-Identifier: GPL-2.0-only
"""What a test expects of its guest's console: a line, a report of trouble, a panic."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from itertools import islice

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestExit, GuestHang, UsageError
from orchestrator.guest.console import REPORTS_MAX, plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_reports import Trouble, report_patterns
from orchestrator.guest.life import State

_PAUSE = 0.02
_MOST_BYTES = 64 << 20
"""Bytes of the console that are looked at for a line: a guest that prints without end is given up."""


def wait_for_line(guest: Guest, regex: str, mark: int, time_limit: float) -> tuple[str, int]:
    """The first line since ``mark`` in which ``regex`` is found, and the mark behind it.

    Raises GuestHang when nothing is printed for ``time_limit`` host seconds, GuestExit when the guest is gone,
    UsageError for what is no regular expression.
    """
    pattern = _compiled(regex)
    end = mark + _MOST_BYTES
    deadline = Deadline(time_limit)
    while deadline.left() and mark < end:
        alive = guest.pid is not None  # asked first: what it printed last is looked at
        lines, after = guest.console.whole_lines(mark)
        for line in lines:
            if pattern.search(line):
                return line, _behind(guest, line, mark)
        if after > mark:
            mark, deadline = after, Deadline(time_limit)
        elif not alive:
            raise GuestExit(f"the guest is gone, and printed no line with {regex!r}", detail=guest.console.last_lines())
        else:
            time.sleep(_PAUSE)
    raise GuestHang(
        f"no line with {regex!r}, and nothing printed for {time_limit:g} s",
        where=str(guest.console.path),
        detail=guest.console.last_lines(),
    )


@contextlib.contextmanager
def expect_oops(guest: Guest, regex: str, time_limit: float) -> Iterator[re.Pattern[str]]:
    """The block makes the kernel report trouble in which ``regex`` is found. Raises GuestError when it does not."""
    (pattern,) = report_patterns([regex])
    mark = guest.console.length()
    failure: GuestError | None = None
    try:
        yield pattern
    except GuestError as error:
        failure = error  # what an oops does to the command that caused it
    if not _reported(guest, pattern, mark, time_limit):
        raise failure or GuestError(
            f"the guest's kernel has reported nothing with {regex!r}",
            where=str(guest.console.path),
            detail=guest.console.last_lines(),
        )


@contextlib.contextmanager
def expect_panic(guest: Guest, regex: str, time_limit: float) -> Iterator[None]:
    """The block makes the kernel panic with a report that ``regex`` fits. Raises GuestError when it does not."""
    pattern = _compiled(regex)
    mark = guest.console.length()
    failure: GuestError | None = None
    try:
        yield
    except GuestError as error:
        failure = error
    deadline, printed = Deadline(time_limit), mark
    while guest.pid is not None and deadline.left():
        if guest.console.length() > printed:
            printed, deadline = guest.console.length(), Deadline(time_limit)
        time.sleep(_PAUSE)
    reports = list(islice(guest.console.reports(mark), REPORTS_MAX))
    panics = [report for report in reports if report.trouble is Trouble.PANIC]
    if not panics or not any(report.is_expected([pattern]) for report in reports):
        raise failure or GuestError(
            f"the guest's kernel has not panicked with {regex!r}",
            where=str(guest.console.path),
            detail=guest.console.last_lines(),
        )
    guest.kill()


def _reported(guest: Guest, pattern: re.Pattern[str], mark: int, time_limit: float) -> bool:
    """Whether the kernel reports what is expected before nothing was printed for ``time_limit`` seconds."""
    deadline, printed = Deadline(time_limit), -1
    while True:
        length = guest.console.length()
        if length != printed:
            printed, deadline = length, Deadline(time_limit)
            reports = islice(guest.console.reports(mark), REPORTS_MAX)
            if any(report.is_expected([pattern]) for report in reports):
                if guest.state is State.READY:
                    guest.drain_console()  # the report's end, which belongs to this test
                return True
        if guest.pid is None or not deadline.left():
            return False
        time.sleep(_PAUSE)


def _behind(guest: Guest, line: str, mark: int) -> int:
    """The mark behind a line that was printed since ``mark``."""
    with guest.console.path.open("rb") as file:
        file.seek(mark)
        for raw in file:
            mark += len(raw)
            if plain_lines(raw) == [line]:
                return mark
    return mark


def _compiled(regex: str) -> re.Pattern[str]:
    try:
        return re.compile(regex, re.MULTILINE)
    except (re.error, TypeError) as error:
        raise UsageError(f"{regex!r} is no regular expression: {error}") from None
