# SPDX-License-Identifier: GPL-2.0-only
"""The output of the kernel's tools/testing/selftests/ftrace/ftracetest.

It prints a test's number and description, then, depending on its options, the test's output, and after a tab the
result. At the end it prints counts::

    [1] Kprobe dynamic event - adding and removing      [PASS]
    [2] (instance)  Test creation and deletion of trace instances       [UNSUPPORTED]

    # of passed:  1

With ``--ktap`` (Linux 6.3) the script prints KTAP instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.ktap.ktap import keep
from orchestrator.ktap.printed_lines import LineCut, TooManyLinesError, printed_lines
from orchestrator.ktap.results import NAME_MAX, PROBLEMS_MAX, RESULTS_MAX, TestOutcome, TestResult, TestRun

_TITLE = "=== Ftrace unit tests ==="


_BEGINNING = re.compile(r"\[(\d{1,6})\]( \(instance\) )?(.*)")


_ENDING = re.compile(r"(.*)\t\[(PASS|FAIL|UNRESOLVED|UNTESTED|UNSUPPORTED|XFAIL|UNDEFINED)\]")


_COUNT = re.compile(r"# of (\w{1,20})(?:\(test bug\))?:\s*(\d{1,6})")


_FIRST = re.compile(r"(?:.*\t)?\[.*|# of .*|\t")
"""The beginnings of the script's lines besides its title; all other lines are a test's output."""


# By the word after a test: the word in the counts, and the outcome; as in the script's KTAP output, indeterminate is
# not ok.
_OUTCOMES = {
    "PASS": ("passed", TestOutcome.PASSED),
    "FAIL": ("failed", TestOutcome.FAILED),
    "UNRESOLVED": ("unresolved", TestOutcome.FAILED),
    "UNTESTED": ("untested", TestOutcome.SKIPPED),
    "UNSUPPORTED": ("unsupported", TestOutcome.SKIPPED),
    "XFAIL": ("xfailed", TestOutcome.XFAILED),
    "UNDEFINED": ("undefined", TestOutcome.FAILED),
}


@dataclass
class _Test:
    number: int
    name: str
    word: str = ""
    is_cut: bool = False
    lines: list[str] = field(default_factory=list)

    def result(self) -> TestResult:
        outcome = TestOutcome.FAILED
        if not self.word:
            reason = "it has no result: the output is truncated, or a line is lost"
        elif self.is_cut:
            reason = "a kernel message cuts its line"
        else:
            reason = "" if self.word in {"PASS", "FAIL", "XFAIL"} else self.word.lower()
            outcome = _OUTCOMES[self.word][1]
        return TestResult(self.name, outcome, reason, tuple(self.lines))


def parse_ftracetest(text: str) -> TestRun:
    """Parse the output of one run of ftracetest; malformed output gives problems."""
    tests: list[_Test] = []
    problems: list[str] = []
    counts: dict[str, int] = {}
    is_titled = False
    try:
        for printed in printed_lines(text, _cut):
            line = printed.text
            # Cut elsewhere than between a test's description and its result.
            is_cut = printed.cut_at is not None and not line.startswith("\t[", printed.cut_at)
            if is_cut and len(problems) < PROBLEMS_MAX:
                problems.append(f"a kernel message cuts the line {line[:NAME_MAX]!r}: it may be damaged")
            last = tests[-1].number if tests else 0
            if line == _TITLE:
                is_titled = True
            elif (begun := _BEGINNING.fullmatch(line)) and int(begun[1]) > last:
                if len(tests) == RESULTS_MAX:
                    problems.append(f"it has more than {RESULTS_MAX} results; the others were not parsed")
                    break
                tests.append(_begun(begun))
                tests[-1].is_cut = is_cut
                number = tests[-1].number
                problems += [f"the lines of tests {last + 1} to {number - 1} are missing"] if number > last + 1 else []
            elif counted := _COUNT.fullmatch(line):
                counts[counted[1]] = int(counted[2])
            elif tests:
                _add(tests[-1], line)
                tests[-1].is_cut |= is_cut
    except TooManyLinesError as error:
        problems.append(str(error))
    if not is_titled:
        problems.append("this is not the output of ftracetest: its title is missing")
    return TestRun(tuple(test.result() for test in tests), (*problems, *_miscounted(tests, counts)))


def _cut(before: str, following: str | None) -> LineCut:
    """Whether a message after ``before`` has cut a line of the script that continues with ``following``."""
    is_scripts = _FIRST.fullmatch(before) or any(
        beginning.startswith(before.rstrip()) for beginning in (_TITLE, "# of ")
    )
    if not is_scripts:
        return LineCut.NONE
    if following is None or following == _TITLE or _BEGINNING.fullmatch(following) or _COUNT.fullmatch(following):
        return LineCut.APART
    return LineCut.JOINED


def _begun(match: re.Match[str]) -> _Test:
    ending = _ENDING.fullmatch(match[3])
    description = (ending[1] if ending else match[3]).strip()
    name = f"{description or f'test {match[1]}'}{' (instance)' if match[2] else ''}"
    return _Test(int(match[1]), name[:NAME_MAX], ending[2] if ending else "")


def _add(test: _Test, line: str) -> None:
    ending = None if test.word else _ENDING.fullmatch(line)
    if ending:
        test.word, line = ending[2], ending[1]
    keep(test.lines, line)


def _miscounted(tests: list[_Test], counts: dict[str, int]) -> list[str]:
    if "passed" not in counts:
        return ["the script's counts are missing: the output is truncated"]
    wrong = []
    for word, (name, _) in _OUTCOMES.items():
        printed = sum(1 for test in tests if test.word == word)
        if counts.get(name, printed) != printed:
            wrong.append(f"the script counts {counts[name]} {name}, but printed {printed} such results")
    return wrong
