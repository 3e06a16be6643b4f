# SPDX-License-Identifier: GPL-2.0-only
"""Results of external tests, and expected failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from orchestrator.plain_text import shown

RESULTS_MAX = 20_000
"""Results of one run; all of KUnit in Linux 6.1 has some 3,000."""

NAME_MAX = 200
KEPT_LINES = 200
"""The most characters of a name, and kept lines of a test's output."""

PROBLEMS_MAX = 100
"""The most kept problems of one output."""


class TestOutcome(StrEnum):
    """A test's outcome. ``XFAILED``: it failed as its own output expects (TODO, XFAIL)."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"


@dataclass(frozen=True)
class TestResult:
    """One test. ``name`` begins with the names of its groups, separated by slashes.

    ``reason`` is the output's reason for the outcome; ``lines`` are the test's output.
    """

    __test__ = False  # keeps pytest from collecting it

    name: str
    outcome: TestOutcome
    reason: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class TestRun:
    """The results in order, and problems of the whole run, each of which is a failure."""

    __test__ = False

    results: tuple[TestResult, ...]
    problems: tuple[str, ...] = ()

    def counted(self) -> str:
        numbers = ((outcome, sum(1 for result in self.results if result.outcome is outcome)) for outcome in TestOutcome)
        return ", ".join(f"{number} {outcome}" for outcome, number in numbers if number) or "no test"


def uniquely_named(results: Sequence[TestResult]) -> Iterator[tuple[str, TestResult]]:
    """The results with unique names: a number follows a repeated name."""
    used: set[str] = set()
    repeated: dict[str, int] = {}
    for result in results:
        name = result.name
        while name in used:
            repeated[result.name] = repeated.get(result.name, 1) + 1
            name = f"{result.name}#{repeated[result.name]}"
        used.add(name)
        yield name, result


_SHOWN = 20
"""The most quoted names and problems: a guest may print thousands."""


@dataclass(frozen=True)
class RunVerdict:
    """The results by unique names, and the ``complaints`` that make the run a failure."""

    results: Mapping[str, TestResult]
    complaints: tuple[str, ...]


def judged(run: TestRun, expected: Mapping[str, str]) -> RunVerdict:
    """Judge a run with ``expected`` failures, reasons by test name.

    A run fails if an unlisted test fails, a listed one passes or is missing, no test ran, or the output has a problem.
    """
    results = {name: _beside(result, expected.get(name)) for name, result in uniquely_named(run.results)}
    failed = [name for name, result in results.items() if result.outcome is TestOutcome.FAILED]
    complaints = []
    if failed:
        complaints.append(f"{len(failed)} of {len(results)} tests failed: {_listed(failed)}")
    if not results:
        complaints.append("no test ran: the output has no result")
    elif all(result.outcome is TestOutcome.SKIPPED for result in results.values()):
        reasons = dict.fromkeys(result.reason for result in results.values() if result.reason)
        complaints.append("; ".join(["no test ran: all are skipped", *list(reasons)[:5]]))
    missing = [name for name in expected if name not in results]
    if missing:
        complaints.append(f"no test has the name of these expected failures: {_listed(missing)}")
    return RunVerdict(results, (*complaints, *shown(run.problems, _SHOWN, "and {} more problems")))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _beside(result: TestResult, reason: str | None) -> TestResult:
    """A result with the list's reason applied."""
    if reason is None or result.outcome in {TestOutcome.SKIPPED, TestOutcome.XFAILED}:
        return result
    if result.outcome is TestOutcome.FAILED:
        return replace(result, outcome=TestOutcome.XFAILED, reason=reason)
    return replace(
        result, outcome=TestOutcome.FAILED, reason=f"it passes, but is listed as an expected failure: {reason}"
    )
