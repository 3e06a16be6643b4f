# SPDX-License-Identifier: GPL-2.0-only
"""A run of tests beside the list of failures that are expected of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.ktap.results import Outcome, TestResult, TestRun, uniquely_named

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
