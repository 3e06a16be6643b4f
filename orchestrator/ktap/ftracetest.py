# SPDX-License-Identifier: GPL-2.0-only
"""The output of the kernel's tools/testing/selftests/ftrace/ftracetest, as results.

It prints a test's number and description, then the test's own output as its options say, and behind a tab the result.
At the end it counts::

    [1] Kprobe dynamic event - adding and removing	[PASS]
    [2] (instance)  Test creation and deletion of trace instances	[UNSUPPORTED]

    # of passed:  1

With ``--ktap`` (Linux 6.3) the script prints KTAP instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.ktap.printed_lines import Cut, PrintedLine, TooManyLinesError, printed_lines
from orchestrator.ktap.results import KEPT_LINES, NAME_MAX, PROBLEMS_MAX, RESULTS_MAX, Outcome, TestResult, TestRun

_TITLE = "=== Ftrace unit tests ==="
_BEGINNING = re.compile(r"\[(\d{1,6})\]( \(instance\) )?(.*)")
_ENDING = re.compile(r"(.*)\t\[(PASS|FAIL|UNRESOLVED|UNTESTED|UNSUPPORTED|XFAIL|UNDEFINED)\]")
_COUNT = re.compile(r"# of (\w{1,20})(?:\(test bug\))?:\s*(\d{1,6})")
_FIRST = re.compile(r"(?:.*\t)?\[.*|# of .*|\t")
"""What a line of the script's own may begin with, its title apart; all else is a test's output."""

# As the script's own KTAP output has them: what is indeterminate is not ok.
_OUTCOMES = {
    "PASS": Outcome.PASSED,
    "FAIL": Outcome.FAILED,
    "UNRESOLVED": Outcome.FAILED,
    "UNTESTED": Outcome.SKIPPED,
    "UNSUPPORTED": Outcome.SKIPPED,
    "XFAIL": Outcome.XFAILED,
    "UNDEFINED": Outcome.FAILED,
}
_COUNTED = {
    "passed": "PASS",
    "failed": "FAIL",
    "unresolved": "UNRESOLVED",
    "untested": "UNTESTED",
    "unsupported": "UNSUPPORTED",
    "xfailed": "XFAIL",
    "undefined": "UNDEFINED",
}


@dataclass
class _Test:
    number: int
    name: str
    word: str = ""
    is_cut: bool = False
    lines: list[str] = field(default_factory=list)

    def result(self) -> TestResult:
        if not self.word:
            reason = "it has no result: the output is cut short, or a line is lost"
            return TestResult(self.name, Outcome.FAILED, reason, tuple(self.lines))
        if self.is_cut:
            reason = "a message of the kernel cuts its line"
            return TestResult(self.name, Outcome.FAILED, reason, tuple(self.lines))
        reason = "" if self.word in {"PASS", "FAIL", "XFAIL"} else self.word.lower()
        return TestResult(self.name, _OUTCOMES[self.word], reason, tuple(self.lines))


def parse_ftracetest(text: str) -> TestRun:
    """The tests of one run of the script; what is wrong with its output is among the problems."""
    tests: list[_Test] = []
    problems: list[str] = []
    counts: dict[str, int] = {}
    is_titled = False
    try:
        for printed in printed_lines(text, _cut):
            line, is_cut = printed.text, _is_damaged(printed)
            if is_cut and len(problems) < PROBLEMS_MAX:
                problems.append(f"a message of the kernel cuts the line {line[:NAME_MAX]!r}: it may be damaged")
            last = tests[-1].number if tests else 0
            if line == _TITLE:
                is_titled = True
            elif (begun := _BEGINNING.fullmatch(line)) and int(begun[1]) > last:
                if len(tests) == RESULTS_MAX:
                    problems.append(f"it has more than {RESULTS_MAX} results; the others were not looked at")
                    break
                problems += _lost(last, int(begun[1]))
                tests.append(_begun(begun))
                tests[-1].is_cut = is_cut
            elif counted := _COUNT.fullmatch(line):
                counts[counted[1]] = int(counted[2])
            elif tests:
                _add(tests[-1], line)
                tests[-1].is_cut |= is_cut
    except TooManyLinesError as error:
        problems.append(str(error))
    if not is_titled:
        problems.append("it is no output of ftracetest: its title is missing")
    return TestRun(tuple(test.result() for test in tests), (*problems, *_miscounted(tests, counts)))


def _cut(before: str, following: str | None) -> Cut:
    """Whether a message behind ``before`` has cut a line of the script's, which ``following`` goes on with."""
    is_own = _FIRST.fullmatch(before) or any(one.startswith(before.rstrip()) for one in (_TITLE, "# of "))
    if not is_own:
        return Cut.NONE
    if following is None or following == _TITLE or _BEGINNING.fullmatch(following) or _COUNT.fullmatch(following):
        return Cut.APART
    return Cut.JOINED


def _is_damaged(line: PrintedLine) -> bool:
    """Whether a line is cut, other than where the script waits for a test: between its description and its result."""
    return line.cut_at is not None and not line.text.startswith("\t[", line.cut_at)


def _begun(found: re.Match[str]) -> _Test:
    ending = _ENDING.fullmatch(found[3])
    description = (ending[1] if ending else found[3]).strip()
    name = f"{description or f'test {found[1]}'}{' (instance)' if found[2] else ''}"
    return _Test(int(found[1]), name[:NAME_MAX], ending[2] if ending else "")


def _add(test: _Test, line: str) -> None:
    ending = None if test.word else _ENDING.fullmatch(line)
    if ending:
        test.word, line = ending[2], ending[1]
    if line and len(test.lines) < KEPT_LINES:
        test.lines.append(line)


def _lost(last: int, number: int) -> list[str]:
    return [f"the lines of tests {last + 1} to {number - 1} are missing"] if number > last + 1 else []


def _miscounted(tests: list[_Test], counts: dict[str, int]) -> list[str]:
    if "passed" not in counts:
        return ["it ends before the script counts its results: it is cut short"]
    wrong = []
    for name, word in _COUNTED.items():
        found = sum(1 for test in tests if test.word == word)
        if counts.get(name, found) != found:
            wrong.append(f"the script counts {counts[name]} {name}, and {found} such results were printed")
    return wrong
