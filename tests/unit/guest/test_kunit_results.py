# SPDX-License-Identifier: GPL-2.0-only
"""Is what a guest shows of KUnit bounded, and is a suite that is missing noticed?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from orchestrator.errors import UsageError
from orchestrator.guest import kernel_tests
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_tests import kunit_results

GOOD = "ok 1 good\n"


class GuestWithSuites:
    """A guest whose debugfs has these files."""

    def __init__(self, suites: Mapping[str, str]) -> None:
        self._suites = suites

    def run(self, argv: Sequence[str]) -> CommandResult:
        return CommandResult(tuple(argv), 0, "".join(f"{name}\n" for name in self._suites).encode(), b"")

    def get(self, source: str) -> bytes:
        return self._suites[source.split("/")[-2]].encode()


def guest_with(suites: Mapping[str, str]) -> Guest:
    return cast("Guest", GuestWithSuites(suites))


def test_a_suite_is_reported_whatever_its_name() -> None:
    run = kunit_results(guest_with({"a, b (c) + d": GOOD, "e": GOOD}))
    assert len(run.results) == 2
    assert run.problems == ()


def test_a_suite_that_was_asked_for_and_did_not_run_is_a_problem() -> None:
    guest = guest_with({"ran": GOOD, "filtered": ""})
    assert kunit_results(guest, ["ran", "filtered"]).problems == ("suite filtered has no result: it did not run",)
    assert kunit_results(guest).problems == ()


def test_a_suite_named_twice_has_one_result() -> None:
    assert len(kunit_results(guest_with({"ran": GOOD}), ["ran", "ran"]).results) == 1


def test_results_of_all_suites_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_tests, "RESULTS_MAX", 5)
    run = kunit_results(guest_with({f"suite{number}": GOOD for number in range(9)}))
    assert len(run.results) == 5
    assert run.problems == ("suite suite5: more than 5 results; the rest was ignored",)
    monkeypatch.setattr(kernel_tests, "OUTPUT_MAX", 3 * len(GOOD))
    assert len(kunit_results(guest_with({f"suite{number}": GOOD for number in range(9)})).results) == 3


def test_suites_that_are_not_looked_at_are_a_problem() -> None:
    run = kunit_results(guest_with({f"suite{number}": GOOD for number in range(1001)}))
    assert len(run.results) == 1000
    assert run.problems == ("there are more than 1000 suites; the others were ignored",)


def test_a_suite_that_is_not_there_names_some_that_are() -> None:
    with pytest.raises(UsageError, match=r"no suite 'x'.*\n?.*suite0, suite1"):
        kunit_results(guest_with({f"suite{number}": GOOD for number in range(1000)}), ["x"])
