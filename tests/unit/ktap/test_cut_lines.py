# SPDX-License-Identifier: GPL-2.0-only
"""Does a message of the kernel's inside a line make a run have a problem, wherever it cuts, and never a pass?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.ktap.ktap import parse_ftracetest, parse_ktap
from orchestrator.ktap.results import NAME_MAX, PROBLEMS_MAX, Outcome, TestRun

PREFIXES = [
    "[    1.234567] ",
    "[12345.000001][   T12] ",
    "[    1.234567][    C0] ",
    "[    1.234567][T123] ",
    "<6>[    1.234567] ",
    "<14>[    1.234567][T12345] ",
    "[    C0] ",
    "<4>",
]
"""What printk puts before a message: times, callers, levels, as the configuration has them."""

PROGRAM = """\
TAP version 13
1..3
ok 1 - first
not ok 2 - second
  ---
  message: broken
  log: |
    words of its own
  ...
ok 3 third # SKIP no device
"""
RUNNER = """\
TAP version 13
1..2
# selftests: t: a
# TAP version 13
# 1..2
# ok 1 first
# not ok 2 second
not ok 1 selftests: t: a # exit=1
# selftests: t: b
ok 2 selftests: t: b # SKIP
"""
KUNIT = """\
KTAP version 1
1..1
    KTAP version 1
    # Subtest: example
    1..2
    # a: EXPECTATION FAILED at a.c:1
    not ok 1 a
    ok 2 b
# example: pass:1 fail:1 skip:0 total:2
not ok 1 example
"""
FTRACE = (Path(__file__).with_name("golden") / "ftracetest-6.1.txt").read_text()


def passed(run: TestRun) -> set[str]:
    """The tests that pass, without the groups that they are in: a piece of a line may stand in another one."""
    return {result.name.rpartition("/")[2] for result in run.results if result.outcome is Outcome.PASSED}


def cuts(text: str) -> list[tuple[str, int]]:
    """The text with a message at each place inside a line, and the place."""
    places = [at for at in range(1, len(text)) if text[at - 1] != "\n"]
    return [(f"{text[:at]}{PREFIXES[at % len(PREFIXES)]}message\n{text[at:]}", at) for at in places]


@pytest.mark.parametrize("text", [PROGRAM, RUNNER, KUNIT], ids=["program", "runner", "kunit"])
def test_a_cut_at_any_place_is_a_problem_and_no_pass(text: str) -> None:
    whole = parse_ktap(text)
    assert whole.problems == ()
    for damaged, _ in cuts(text):
        run = parse_ktap(damaged)
        assert run.problems, damaged
        assert passed(run) <= passed(whole), damaged


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("at", range(1, len("not ok 2 - second") + 1))
def test_a_failure_stays_one_whatever_the_prefix(prefix: str, at: int) -> None:
    start = PROGRAM.index("not ok 2")
    run = parse_ktap(f"{PROGRAM[: start + at]}{prefix}message\n{PROGRAM[start + at :]}")
    assert run.results[1].name == "second"
    assert run.results[1].outcome is Outcome.FAILED
    assert run.problems == ("a message of the kernel cuts the line 'not ok 2 - second': it may be damaged",)


def test_a_line_is_put_together_of_several_pieces() -> None:
    text = "1..1\nno[    1.000000] one\n[    1.000001] two\nt ok[    1.000002][   T12] three\n 1 - broken\n"
    run = parse_ktap(text)
    assert [(result.name, result.outcome) for result in run.results] == [("broken", Outcome.FAILED)]
    assert set(run.results[0].lines) == {"one", "two", "three"}


def test_equal_lines_that_are_cut_are_no_quotations() -> None:
    run = parse_ktap("ok 1 x[    1.000000] message\n" * 2)
    assert passed(run) == set()


def test_a_skip_whose_reason_is_cut_off_is_no_pass() -> None:
    run = parse_ktap("1..1\nok 1 - it [    1.000000] message\n# SKIP no device\n")
    assert [result.outcome for result in run.results] == [Outcome.FAILED]


def test_a_cut_in_a_log_whose_lines_all_have_a_prefix() -> None:
    lines = [f"[    3.{number:06}] {line}" for number, line in enumerate(KUNIT.splitlines())]
    assert parse_ktap("\n".join(lines)).problems == ()
    for at in range(len("[    3.000000] "), len(lines[6]) + 1):
        cut = f"{lines[6][:at]}[    4.000000] message\n{lines[6][at:]}"
        run = parse_ktap("\n".join([*lines[:6], cut, *lines[7:]]))
        assert "a message of the kernel cuts the line 'not ok 1 a': it may be damaged" in run.problems
        assert "a" not in passed(run)


@pytest.mark.parametrize(
    "quoting",
    [
        "# dmesg has [    1.234567] a message",
        "# [    1.234567] one\n# [    1.234568][   T12] another",
        "dmesg: [    1.234567] a message",
        "dmesg: [    1.234567] one\ndmesg: [    1.234568] another",
        "# <6>words",
        "[    1.234567] it says [    1.234566] words",
        "[    1.234567] a message of its own line",
        "[    C0] a message of its own line",
    ],
)
def test_what_quotes_a_message_is_not_cut(quoting: str) -> None:
    text = f"TAP version 13\n1..2\nok 1 - vector<3>::at, map<1>\n{quoting}\nok 2 - [T1] and [1.5]\n"
    run = parse_ktap(text)
    assert run.problems == ()
    assert passed(run) == {"vector<3>::at, map<1>", "[T1] and [1.5]"}
    below = "TAP version 13\n1..1\n" + "".join(f"# {line}\n" for line in text.splitlines()) + "ok 1 - program\n"
    assert parse_ktap(below).problems == ()


def test_a_cut_of_ftracetests_lines() -> None:
    """A message between the description and the result is no damage: the script waits for the test there."""
    whole = parse_ftracetest(FTRACE)
    waits = 0
    for damaged, at in cuts(FTRACE[: FTRACE.index("[5] ")] + FTRACE[FTRACE.index("\n# of passed") :]):
        run = parse_ftracetest(damaged)
        waits += FTRACE[at:].startswith("\t[") and not any("cuts the line" in problem for problem in run.problems)
        assert run.problems
        assert passed(run) <= passed(whole)
    assert waits == 4
    for at in (at for at in range(len(FTRACE)) if FTRACE[at:].startswith("\t[")):
        run = parse_ftracetest(f"{FTRACE[:at]}[    1.234567] message\n{FTRACE[at:]}")
        assert run.problems == ()
        assert passed(run) == passed(whole)


def test_what_a_test_of_ftracetest_logs_may_quote_a_message() -> None:
    run = parse_ftracetest(FTRACE.replace("\n[2] ", "\n+ dmesg: [    1.234567] words\nmore\n[2] ", 1))
    assert run.problems == ()
    assert len(run.results) == 22


@pytest.mark.parametrize("parse", [parse_ktap, parse_ftracetest])
def test_cuts_without_end_are_bounded(parse: Callable[[str], TestRun]) -> None:
    for line in ("ok 1 x[    1.234567] message\n", "[1[    1.234567] message\n", "no[    1.234567] message\nt\n"):
        run = parse(line * 3000)
        assert len(run.problems) <= PROBLEMS_MAX + 1
        assert all(len(problem) < 2 * NAME_MAX for problem in run.problems)
