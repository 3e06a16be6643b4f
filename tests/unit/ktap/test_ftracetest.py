# SPDX-License-Identifier: GPL-2.0-only
"""Is every result of ftracetest read, and everything that is wrong with its output?"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from orchestrator.ktap.ftracetest import parse_ftracetest
from orchestrator.ktap.results import TestOutcome

GOLDEN = (Path(__file__).with_name("golden") / "ftracetest-6.1.txt").read_text()
"""``ftracetest -v test.d/kprobe`` of Linux 6.1, on debian-686 and a Pentium 4."""

FAILED = """\
=== Ftrace unit tests ===
[1] Basic trace file check	[PASS]
[2] Basic test for tracers	[FAIL]
execute: /data/ftrace/test.d/00basic/basic2.tc
+ [ 1 -eq 2 ]
+ echo 'a line with a	[PASS] in it'
[3] (instance)  Snapshot and tracing setting	[XFAIL]
[4] Trace pipe
+ inline output
	[UNSUPPORTED]


# of passed:  1
# of failed:  1
# of unresolved:  0
# of untested:  0
# of unsupported:  1
# of xfailed:  1
# of undefined(test bug):  0
"""


def test_a_run_in_a_real_guest() -> None:
    run = parse_ftracetest(GOLDEN)
    assert run.problems == ()
    assert Counter(test.outcome for test in run.results) == {TestOutcome.PASSED: 20, TestOutcome.FAILED: 2}
    assert [(test.name, test.reason) for test in run.results if test.outcome is TestOutcome.FAILED] == [
        ("Kprobe event symbol argument", "unresolved"),
        ("Kprobe dynamic event - probing module", "unresolved"),
    ]


def test_each_outcome_and_what_a_failed_test_logged() -> None:
    run = parse_ftracetest(FAILED)
    assert run.problems == ()
    assert [(test.name, test.outcome, test.reason) for test in run.results] == [
        ("Basic trace file check", "passed", ""),
        ("Basic test for tracers", "failed", ""),
        ("Snapshot and tracing setting (instance)", "xfailed", ""),
        ("Trace pipe", "skipped", "unsupported"),
    ]
    assert run.results[1].lines[1] == "+ [ 1 -eq 2 ]"
    assert run.results[3].lines == ("+ inline output",)


def test_what_a_crash_cuts_short() -> None:
    run = parse_ftracetest("\n".join(FAILED.splitlines()[:9]))
    assert run.results[-1].outcome is TestOutcome.FAILED
    assert run.results[-1].reason == "it has no result: the output is truncated, or a line is lost"
    assert run.problems == ("the script's counts are missing: the output is truncated",)


@pytest.mark.parametrize(
    ("removed", "problem"),
    [
        ("[2] Basic test for tracers	[FAIL]\n", "the lines of tests 2 to 2 are missing"),
        (
            "[4] Trace pipe\n+ inline output\n	[UNSUPPORTED]\n",
            "the script counts 1 unsupported, but printed 0 such results",
        ),
        ("=== Ftrace unit tests ===\n", "this is not the output of ftracetest: its title is missing"),
    ],
)
def test_lines_that_are_missing(removed: str, problem: str) -> None:
    assert removed in FAILED
    problems = parse_ftracetest(FAILED.replace(removed, "")).problems
    assert any(found.startswith(problem) for found in problems), problems


def test_nothing_at_all() -> None:
    run = parse_ftracetest("")
    assert run.results == ()
    assert len(run.problems) == 2
