# SPDX-License-Identifier: GPL-2.0-only
"""What a person sees of the tests: each failure when it happens, with what repeats it, and why tests were skipped."""

from __future__ import annotations

import os
import shlex
from collections import Counter

import pytest

_PREFIX = "Skipped: "
_LAB = "ORCHESTRATOR_TESTS_CALLED_AS"
"""What the caller typed for the lab, where its script started the tests."""


class FailuresAtOnce:
    """Writes each failure when it happens, whole, and not again in the end, where one line for each is left."""

    def __init__(self, config: pytest.Config, lab: str | None) -> None:
        self._config = config
        self._command = f"{lab} test" if lab else "pytest --qemu"
        self._terminal: pytest.TerminalReporter | None = None

    def pytest_sessionstart(self) -> None:
        self._terminal = self._config.pluginmanager.getplugin("terminalreporter")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            nightly = " --nightly" if "nightly" in report.keywords else ""
            self._write(report, f"{self._command}{nightly} {shlex.quote(report.nodeid)}")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(report, f"{self._command} {shlex.quote(report.nodeid)}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self._config.option.tbstyle = "no"

    def _write(self, report: pytest.TestReport | pytest.CollectReport, again: str) -> None:
        terminal = self._terminal
        if terminal is None:
            return
        terminal.ensure_newline()
        stage = "" if report.when in ("call", "collect") else f" ({report.when})"
        terminal.write_sep("_", f"{report.nodeid}{stage}", red=True)
        report.toterminal(terminal._tw)
        for title, text in report.sections:
            terminal.write_sep("-", title)
            terminal.write_line(text.rstrip("\n"))
        terminal.write_line(f"again: {again}", bold=True)


def report_as_it_comes(config: pytest.Config) -> None:
    """Write failures when they happen, in the process that has the terminal. To be called before the environment is
    made neutral, which takes the caller's words away."""
    if not hasattr(config, "workerinput") and config.option.tbstyle != "no":
        config.pluginmanager.register(FailuresAtOnce(config, os.environ.get(_LAB)))


def write_skip_summary(reporter: pytest.TerminalReporter) -> None:
    """Write how many tests were skipped for each reason, the most frequent first.

    `-rs` has one for each line of a file instead, over three hundred of them on a host with few kernels, and a failure
    among them is not seen.
    """
    reasons = Counter(_reason(report) for report in reporter.stats.get("skipped", []))
    if not reasons:
        return
    reporter.section("skipped tests, and why")
    for reason, number in reasons.most_common():
        reporter.write_line(f"{number:5} {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    skipped = report.longrepr
    return skipped[2].removeprefix(_PREFIX) if isinstance(skipped, tuple) else str(skipped)
