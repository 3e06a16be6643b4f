# SPDX-License-Identifier: GPL-2.0-only
"""The results of a run of somebody else's tests, whatever form they were printed in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
        """The numbers of results by outcome, as text."""
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
