# SPDX-License-Identifier: GPL-2.0-only
"""What a guest prints on its console: text, the kernel's reports in it, and the results of the kernel's own tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fuzz.scratch import file
from orchestrator.guest.console import Console
from orchestrator.guest.diagnosis import trouble_of
from orchestrator.guest.kernel_reports import KernelReport, reports_in
from orchestrator.ktap.ftracetest import parse_ftracetest
from orchestrator.ktap.ktap import parse_ktap
from orchestrator.ktap.results import judged

_NO_FAILURES: dict[str, str] = {}


def read_console(data: bytes) -> None:
    """The log that QEMU writes: its last lines, and the reports in it."""
    console = Console(file("console", data))
    console.last_lines()
    shown = console.last_line()
    assert shown.isprintable(), "a terminal would obey the console's last line"
    _blamed(list(console.reports()))


def read_kernel_reports(data: bytes) -> None:
    """Lines in which a kernel may report something, however long."""
    _blamed(list(reports_in(data.decode("utf-8", errors="replace").split("\n"))))


def _blamed(reports: Sequence[KernelReport]) -> None:
    """What a guest's failure says of its kernel's reports: the function to blame, the panic among them."""
    assert all(report.lines for report in reports)
    str(trouble_of(reports, Path("console")))


def read_ktap(data: bytes) -> None:
    """The output of KUnit, of kselftest, or of any other test in TAP."""
    judged(parse_ktap(data.decode("utf-8", errors="replace")), _NO_FAILURES)


def read_ftracetest(data: bytes) -> None:
    """The output of ftrace's selftests."""
    judged(parse_ftracetest(data.decode("utf-8", errors="replace")), _NO_FAILURES)
