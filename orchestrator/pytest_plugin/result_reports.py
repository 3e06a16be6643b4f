# SPDX-License-Identifier: GPL-2.0-only
"""A pytest result for each third-party test, if one test of the session runs many of them.

Their names are unknown until the guest has run them, so they are not items. The report of the test that ran them
carries them, also from a pytest-xdist worker, and the process that shows reports makes a report of each after the test
has ended, unless the test is rerun. Its id is the test's with the name appended:
``test_kprobes.py::test_selftests[Kprobe profile]``.

Every pytest of an environment imports this file, so it imports nothing heavy.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.pytest_plugin.session import attempt

if TYPE_CHECKING:
    from orchestrator.pytest_plugin.ktap_tests import KernelTests

_ATTRIBUTE = "orchestrator_results"
_LINES = 60
_RERUN = "rerun"
"""The outcome that pytest-rerunfailures gives a report when it runs the test again."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the reports in the process that shows them; pytest-xdist workers send their tests' reports there."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_ReportsOfResults(config))
        if comment := config.getoption("qemu_comment"):
            config.pluginmanager.register(_Comment(config.invocation_params.dir / comment))


@pytest.fixture
def ktap(request: pytest.FixtureRequest) -> KernelTests:
    """Runs third-party tests in a guest: KUnit's, kselftest's, ftracetest's. Each has a result of its own."""
    from orchestrator.pytest_plugin.ktap_tests import KernelTests

    return KernelTests(request.path.parent, attempt(request.node).results)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach a test's recorded results to its report."""
    report = yield
    if report.when == "call" and (results := attempt(item).results):
        setattr(report, _ATTRIBUTE, results)
    return report


class _ReportsOfResults:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._called: dict[tuple[str, object], pytest.TestReport] = {}  # by test and worker, while the test runs

    @pytest.hookimpl(trylast=True)  # after the test's own report
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        key = report.nodeid, getattr(report, "node", None)
        if hasattr(report, _ATTRIBUTE):
            self._called[key] = report
        elif report.when not in {"setup", "call"} and key in self._called:  # at teardown, or after a worker's crash
            called = self._called.pop(key)
            if _RERUN not in {called.outcome, report.outcome}:
                self._show(called)

    @pytest.hookimpl(tryfirst=True)  # before JUnit's XML is written
    def pytest_sessionfinish(self) -> None:
        """Show the results of tests whose end was interrupted."""
        for report in self._called.values():
            if report.outcome != _RERUN:
                self._show(report)

    def _show(self, report: pytest.TestReport) -> None:
        results: Sequence[dict[str, Any]] = getattr(report, _ATTRIBUTE)
        session = self._config.pluginmanager.get_plugin("session")
        if isinstance(session, pytest.Session):
            session.testscollected += len(results)  # the percentage shown counts reports
        for result in results:
            self._config.hook.pytest_runtest_logreport(report=_report_of(report, result))


def _report_of(test: pytest.TestReport, result: dict[str, Any]) -> pytest.TestReport:
    name, outcome, reason = result["name"], result["outcome"], result["reason"]
    path, line, domain = test.location
    shown = "\n".join([*filter(None, [reason]), *result["lines"][-_LINES:]])
    report = pytest.TestReport(
        nodeid=f"{test.nodeid}[{name}]",
        location=(path, line, f"{domain}[{name}]"),
        keywords={},
        outcome="failed" if outcome == "failed" else "passed" if outcome == "passed" else "skipped",
        longrepr=None,
        when="call",
    )
    if outcome == "failed":
        report.longrepr = shown or "it failed without output"
    elif outcome == "skipped":
        report.longrepr = (path, line or 0, f"Skipped: {name}{': ' if reason else ''}{reason}")
    elif outcome == "xfailed":
        report.longrepr = shown
        report.wasxfail = reason  # as in pytest's skipping.py
    return report


_COUNT = re.compile(r"instructions(?:_(budget|before|change))?\[(.*)\]", re.DOTALL)
_COLUMNS = ("before", "after", "change", "budget")
_FAILURE_LINES = 40


class _Comment:
    """Writes the counts and the failures of a session as a comment of a pull request."""

    def __init__(self, file: Path) -> None:
        if not file.parent.is_dir():
            raise pytest.UsageError(f"--qemu-comment: there is no folder {file.parent}")
        self._file = file
        self._reports: dict[str, pytest.TestReport] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a test's last call, or what failed around it."""
        if report.when == "call" or report.failed:
            self._reports[report.nodeid] = report

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the file."""
        # Imported here: see above.
        from orchestrator.files import write_whole
        from orchestrator.plain_text import counted, plain_text
        from orchestrator.report.columns import Columns, columns_of
        from orchestrator.report.github_comment import FAILS, PASSES, details, github_comment
        from orchestrator.report.markdown import grid_table, quoted
        from orchestrator.version import __version__

        failed = {test: report for test, report in self._reports.items() if report.failed}
        passed = sum(report.passed for report in self._reports.values())
        note = f"; the exit status is {int(exitstatus)}" if exitstatus and not failed else ""  # a file is wrong
        verdict = f"{FAILS if exitstatus else PASSES} {counted(passed, 'test')} passed, {len(failed)} failed{note}."
        rows, columns = [], Columns(columns_of(_COLUMNS, str))
        for test, report in self._reports.items():
            counts: dict[str, defaultdict[str, str]] = {}
            for name, value in report.user_properties:
                if (match := _COUNT.fullmatch(name)) is not None:
                    counts.setdefault(match[2], defaultdict(str))[match[1] or "after"] = str(value)
            rows += [columns.row(f"{test}: {label}", figures.__getitem__) for label, figures in counts.items()]
        parts = [grid_table(columns.grid(rows))] if rows else []
        for test, report in failed.items():
            parts.append(details(test, quoted(plain_text(report.longreprtext).splitlines()[-_FAILURE_LINES:])))
        made = f"probe-lab {__version__}, pytest {pytest.__version__}"
        write_whole(self._file, github_comment("pytest", verdict, parts, made, "pytest --qemu"))
