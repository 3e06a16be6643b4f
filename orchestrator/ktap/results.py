# SPDX-License-Identifier: GPL-2.0-only
"""The results of a run of somebody else's tests, and those that are expected to fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

RESULTS_MAX = 20_000
"""Results of one run; all of KUnit in Linux 6.1 has some 3,000."""

NAME_MAX = 200
KEPT_LINES = 200
"""Characters of a name, and lines kept of what one test printed."""

PROBLEMS_MAX = 100
"""Problems of one output that are kept."""


class Outcome(StrEnum):
    """How a test ended. ``XFAILED``: it failed, and says itself that it is known to (TODO, XFAIL)."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    XFAILED = "xfailed"


@dataclass(frozen=True)
class TestResult:
    """One test. ``name`` has the names of what it is nested in before its own, with slashes.

    ``reason`` is what the output says about the outcome; ``lines`` are what was printed in its place.
    """

    __test__ = False  # for pytest, which takes what begins with Test for its own

    name: str
    outcome: Outcome
    reason: str = ""
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class TestRun:
    """The results in their order, and what is wrong with the run as a whole: each problem makes it a failure."""

    __test__ = False

    results: tuple[TestResult, ...]
    problems: tuple[str, ...] = ()

    def counted(self) -> str:
        numbers = ((outcome, sum(1 for result in self.results if result.outcome is outcome)) for outcome in Outcome)
        return ", ".join(f"{number} {outcome}" for outcome, number in numbers if number) or "no test"


def joined(runs: Sequence[TestRun]) -> TestRun:
    """Several runs as one."""
    results = tuple(result for run in runs for result in run.results)
    return TestRun(results, tuple(problem for run in runs for problem in run.problems))


def uniquely_named(results: Sequence[TestResult]) -> Iterator[tuple[str, TestResult]]:
    """The results, each with a name that no other has: a repeated one is followed by its number."""
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
"""Names, and problems, that a complaint quotes: a guest may print thousands."""


@dataclass(frozen=True)
class Verdict:
    """The results by names of their own, and why the run is a failure, if it is: without ``complaints`` it is none."""

    results: Mapping[str, TestResult]
    complaints: tuple[str, ...]


def judged(run: TestRun, expected: Mapping[str, str]) -> Verdict:
    """A run beside ``expected``: tests that fail, by name, with the reason.

    A run fails where a test fails that is not listed, a listed one passes or is not there, nothing was run, or the
    output has a problem.
    """
    results = {name: _beside(result, expected.get(name)) for name, result in uniquely_named(run.results)}
    failed = [name for name, result in results.items() if result.outcome is Outcome.FAILED]
    complaints = []
    if failed:
        complaints.append(f"{len(failed)} of {len(results)} tests failed: {_listed(failed)}")
    if not results:
        complaints.append("no test ran: there is no result in the output")
    elif all(result.outcome is Outcome.SKIPPED for result in results.values()):
        reasons = dict.fromkeys(result.reason for result in results.values() if result.reason)
        complaints.append("; ".join(["no test ran: all are skipped", *list(reasons)[:5]]))
    missing = [name for name in expected if name not in results]
    if missing:
        complaints.append(f"expected failures are listed that no test has the name of: {_listed(missing)}")
    more = len(run.problems) - _SHOWN
    rest = [f"and {more} problems more"] if more > 0 else []
    return Verdict(results, (*complaints, *run.problems[:_SHOWN], *rest))


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _beside(result: TestResult, reason: str | None) -> TestResult:
    """A result with what the list says about it."""
    if reason is None or result.outcome in {Outcome.SKIPPED, Outcome.XFAILED}:
        return result
    if result.outcome is Outcome.FAILED:
        return replace(result, outcome=Outcome.XFAILED, reason=reason)
    return replace(result, outcome=Outcome.FAILED, reason=f"it passes, and is listed as an expected failure: {reason}")
