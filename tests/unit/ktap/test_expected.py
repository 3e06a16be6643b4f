# SPDX-License-Identifier: GPL-2.0-only
"""Is a run of somebody else's tests a failure where it has to be, and only there?"""

from __future__ import annotations

from orchestrator.ktap.results import Outcome, TestResult, TestRun, judged

PASSED, FAILED = TestResult("good", Outcome.PASSED), TestResult("bad", Outcome.FAILED, "because")
SKIPPED = TestResult("absent", Outcome.SKIPPED, "no such device")


def outcomes(run: TestRun, expected: dict[str, str]) -> dict[str, str]:
    return {name: result.outcome for name, result in judged(run, expected).results.items()}


def test_a_failure_fails_the_run() -> None:
    verdict = judged(TestRun((PASSED, FAILED)), {})
    assert verdict.complaints == ("1 of 2 tests failed: bad",)


def test_an_expected_failure_does_not() -> None:
    verdict = judged(TestRun((PASSED, FAILED)), {"bad": "known since 6.1"})
    assert verdict.complaints == ()
    assert verdict.results["bad"] == TestResult("bad", Outcome.XFAILED, "known since 6.1")


def test_an_expected_failure_that_passes_fails_the_run() -> None:
    verdict = judged(TestRun((PASSED,)), {"good": "known since 6.1"})
    assert verdict.complaints == ("1 of 1 tests failed: good",)
    reason = "it passes, and is listed as an expected failure: known since 6.1"
    assert verdict.results["good"].reason == reason


def test_a_listed_name_that_no_test_has_fails_the_run() -> None:
    assert judged(TestRun((PASSED,)), {"gone": "why"}).complaints == (
        "expected failures are listed that no test has the name of: gone",
    )


def test_running_no_test_is_a_failure() -> None:
    assert judged(TestRun(()), {}).complaints == ("no test ran: there is no result in the output",)
    assert judged(TestRun((SKIPPED,)), {}).complaints == ("no test ran: all are skipped; no such device",)
    assert judged(TestRun((SKIPPED, PASSED)), {}).complaints == ()


def test_a_problem_of_the_output_is_a_failure() -> None:
    assert judged(TestRun((PASSED,), ("cut short",)), {}).complaints == ("cut short",)


def test_names_are_told_apart() -> None:
    run = TestRun((PASSED, FAILED, TestResult("bad", Outcome.PASSED), FAILED))
    assert outcomes(run, {}) == {"good": "passed", "bad": "failed", "bad#2": "passed", "bad#3": "failed"}


def test_a_complaint_is_short_whatever_a_guest_prints() -> None:
    many = tuple(TestResult(f"bad{number}", Outcome.FAILED) for number in range(1000))
    verdict = judged(TestRun(many, tuple(f"problem {number}" for number in range(1000))), {})
    assert len(verdict.results) == 1000
    assert verdict.complaints[0].endswith("bad18, bad19 and 980 more")
    assert verdict.complaints[-2:] == ("problem 19", "and 980 problems more")
    assert len(verdict.complaints) == 22
