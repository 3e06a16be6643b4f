# SPDX-License-Identifier: GPL-2.0-only
"""The output of tests as results: KTAP 1, TAP as the kernel's tests print it, and ftracetest.

KTAP is described in the kernel's Documentation/dev-tools/ktap.rst. Groups of tests are nested by indentation, of
whatever width, as KUnit does it, or by the "# " that kselftest's runner puts before a program's lines. The result that
a group belongs to comes after the group::

    KTAP version 1
    1..1
        # Subtest: kprobes_test
        1..2
        ok 1 test_kprobe
        not ok 2 test_kretprobe
    not ok 1 kprobes_test

KUnit's parametrised tests have no plan, and the files of its debugfs had neither version nor plan at first: that there
is no plan is a problem only where a version line begins an output.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.ktap.results import KEPT_LINES, NAME_MAX, PROBLEMS_MAX, RESULTS_MAX, Outcome, TestResult, TestRun
from orchestrator.plain_text import plain_text

# The lines that a guest printed, without what the kernel's log puts before them.
#
# On a serial console the kernel prints its messages wherever a program's output has got to, also inside a line::
#
#     not [    1.234567] random: crng init done
#     ok 1 - the test
#
# Both pieces are marked then: a result in one of them is none to rely on.

LINE_MAX = 4096
LINES_MAX = 500_000
"""Characters of a line, and lines, that are looked at."""

# What info_print_prefix() of kernel/printk/printk.c prints: the level with console_msg_format=syslog, the time with
# CONFIG_PRINTK_TIME, and with CONFIG_PRINTK_CALLER the thread or CPU, in at least six characters. A space follows the
# last two.
_LEVEL = r"<\d{1,3}>"
_TIME = r"\[ {0,12}\d{1,12}\.\d{6}\](?:\[ {0,12}[TC]\d{1,10}\])?"
_CALLER = r"\[(?=[ TC\d]{6,})[ ]{0,4}[TC]\d{1,10}\]"
_PREFIX = re.compile(rf"(?:{_LEVEL})?(?:{_TIME}|{_CALLER}) ?|{_LEVEL}")
# A level alone begins a message only where words follow: "vector<3>::at" does not.
_INSIDE = re.compile(rf"(?:{_LEVEL})?(?:{_TIME}|{_CALLER})(?= |$)|{_LEVEL}(?=[^\s:,.;>)\]}}])")
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")


class TooManyLinesError(Exception):
    """More was printed than is looked at."""


@dataclass(frozen=True)
class PrintedLine:
    """A line with its indentation. ``is_logged``: the kernel's log has it, with a prefix.

    ``is_cut`` where a message of the kernel's was printed inside it, ``is_rest`` where it may be what follows one.
    """

    text: str
    is_logged: bool = False
    is_cut: bool = False
    is_rest: bool = False

    @property
    def is_damaged(self) -> bool:
        return self.is_cut or self.is_rest


def printed_lines(text: str, counts: Callable[[str], bool]) -> Iterator[PrintedLine]:
    """The lines without log prefixes and control characters. Raises TooManyLinesError.

    ``counts`` says of the text before a message whether it may begin a line that is more than a remark: a remark may
    quote a message. It is asked when all lines before have been taken.
    """
    is_open = False  # the rest of a line that was cut is still to come
    # One at a time: as a list, 16 MiB of short lines take half a gigabyte.
    for number, whole in enumerate(io.StringIO(text, newline="\n")):
        if number == LINES_MAX:
            raise TooManyLinesError(f"it has more than {LINES_MAX} lines; the others were not looked at")
        line = plain_text(_CONTROL.sub("", whole.rstrip("\n")[:LINE_MAX]).rstrip())
        prefix = _PREFIX.match(line)
        line, is_logged = line[prefix.end() if prefix else 0 :], prefix is not None
        is_rest = is_open and not is_logged
        inside = _INSIDE.search(line, 0 if is_logged else 1)
        if inside is not None and (is_rest or counts(line[: inside.start()])):
            yield PrintedLine(line[: inside.start()], is_logged, is_cut=True)
            yield PrintedLine(_PREFIX.sub("", line[inside.start() :], count=1), is_logged=True)
            is_open = True
        else:
            yield PrintedLine(line, is_logged, is_rest=is_rest)
            is_open = is_open and is_logged


# Output in KTAP 1 and in TAP, as results.

DEPTH_MAX = 12
"""Levels of nesting; KUnit has three, kselftest's runner adds one."""

_VERSION = re.compile(r"(K?TAP) version (\d{1,3})")
_PLAN = re.compile(r"1\.\.(\d{1,9})(?:\s*#\s*(.*))?")
_RESULT = re.compile(r"(not )?ok(?=\s|$)(?:\s+(\d{1,9})(?=\s|$))?\s*(?:-(?:\s+|$))?(.*)")
_DIRECTIVE = re.compile(r"(?:^|(?<=\s))#\s*(SKIP|TODO|XFAIL|TIMEOUT|ERROR)\S*\s*(.*)", re.IGNORECASE)
_DIAGNOSTIC = re.compile(r"(?:^|(?<=\s))#\s+(.*)")
_SUBTEST = re.compile(r"#\s*Subtest(?::\s*(.*))?")
_BAIL_OUT = re.compile(r"Bail out!\s*(.*)", re.IGNORECASE)
_HASHES = re.compile(r"(?:# ){0,3}")
_BEGINNINGS = ("not ok", "ok", "1..", "TAP version", "KTAP version", "Bail out!")
Place = tuple[int, int]
"""Where a line's words begin: behind this many "# ", and then this many characters of indentation."""


@dataclass
class _Node:
    """A result line, and the tests of its group."""

    name: str
    outcome: Outcome
    reason: str = ""
    lines: list[str] = field(default_factory=list)
    group: list[_Node] = field(default_factory=list)


@dataclass
class _Level:
    """What stands at one place, up to a line that stands farther out. ``remark`` is the plan's."""

    place: Place
    title: str = ""
    is_versioned: bool = False
    plan: int | None = None
    remark: str = ""
    nodes: list[_Node] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    number: int = 0
    group: _Level | None = None
    """The group that ended last; the next result at this place is its own."""


def parse_ktap(text: str) -> TestRun:
    """The tests in a program's or a kernel's output; what is wrong with it is among the problems."""
    parser = _Parser()
    try:
        for line in printed_lines(text, parser.counts):
            if not parser.take(line):
                break
    except TooManyLinesError as error:
        parser.problem(str(error))
    return parser.finish()


class _Parser:
    """``_levels`` are the places that are open, farther in each time; the first only collects what has ended."""

    def __init__(self) -> None:
        self._levels = [_Level((-1, 0))]
        self._problems: list[str] = []
        self._results = 0

    def problem(self, sentence: str) -> None:
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(sentence)

    def take(self, line: PrintedLine) -> bool:
        """Take a line; False where it is the last one that counts."""
        place, words = self._placed(line.text)
        if line.is_cut:
            self.problem(f"a message of the kernel cuts the line {_bounded(words)!r}: it may be damaged")
        if bail_out := _BAIL_OUT.match(words):
            self.problem(f"the tests were given up: {_bounded(bail_out[1]) or 'no reason is given'}")
            return place[0] > 0  # behind "# " only one program has given up
        if _VERSION.fullmatch(words):
            self._headed(place).is_versioned = True
        elif subtest := _SUBTEST.fullmatch(words):
            level = self._reach(place)
            if level.title or level.plan is not None or level.nodes:  # it may follow its version line
                level = self._new_level(place)
            level.title = _bounded(subtest[1] or "")
        elif plan := _PLAN.fullmatch(words):
            self._planned(place, int(plan[1]), plan[2] or "")
        elif found := self._result_in(place, words):
            if self._results == RESULTS_MAX:
                self.problem(f"it has more than {RESULTS_MAX} results; the others were not looked at")
                return False
            self._result(place, found, is_damaged=line.is_damaged)
        elif words and len(lines := self._levels[-1].lines) < KEPT_LINES:
            lines.append(words)
        return True

    def counts(self, before: str) -> bool:
        """Whether a line that begins so may be more than a remark; or a remark that a message has cut."""
        place, words = self._placed(before)
        if not words:
            return place[0] == 0  # a program below the runner of kselftest prints the kernel's log
        is_begun = any(one.startswith(words.rstrip()) for one in _BEGINNINGS)
        return words == "#" or is_begun or _RESULT.fullmatch(words) is not None or self._is_structure(before)

    def finish(self) -> TestRun:
        """All that was taken. Groups that are still open have no result."""
        while len(self._levels) > 1:
            self._receive(self._levels.pop())
        return TestRun(tuple(_tests(self._levels[0].nodes, "")), tuple(self._problems))

    def _placed(self, line: str) -> tuple[Place, str]:
        """Where a line stands, and its words. "# " begins a program's line once a version or a plan was behind it."""
        hashes = len(_HASHES.match(line)[0]) // 2  # type: ignore[index]  # it matches what is empty, too
        for nesting in range(hashes, -1, -1):
            rest = line[2 * nesting :]
            words = rest.lstrip()
            is_open = any(level.place[0] == nesting for level in self._levels)
            if nesting == 0 or is_open or _VERSION.fullmatch(words) or _PLAN.fullmatch(words):
                break
        return (nesting, len(rest) - len(words)), words

    def _is_structure(self, line: str) -> bool:
        """Whether a line is more than a remark."""
        place, words = self._placed(line)
        found = any(pattern.fullmatch(words) for pattern in (_VERSION, _SUBTEST, _PLAN, _BAIL_OUT))
        return found or self._result_in(place, words) is not None

    def _result_in(self, place: Place, words: str) -> re.Match[str] | None:
        """A result line. It may have no number, as in TAP, where a version or a plan says that results stand there."""
        found = _RESULT.fullmatch(words)
        if found is None or found[2]:
            return found
        is_announced = any(one.place == place and (one.is_versioned or one.plan is not None) for one in self._levels)
        return found if is_announced else None

    def _reach(self, place: Place) -> _Level:
        """The level of a place, open. Those farther in have ended."""
        while self._levels[-1].place > place:
            ended = self._levels.pop()
            if self._levels[-1].place < place:  # the output begins inside of a group
                self._levels.append(_Level(place))
            self._receive(ended)
        if self._levels[-1].place < place and len(self._levels) <= DEPTH_MAX:
            self._levels.append(_Level(place))
        return self._levels[-1]

    def _new_level(self, place: Place) -> _Level:
        """A level where nothing stands yet. What stood there has ended: an output before this one, or a group."""
        level = self._reach(place)
        if level.is_versioned or level.plan is not None or level.nodes or level.group is not None:
            self._receive(self._levels.pop())
            level = _Level(level.place)
            self._levels.append(level)
        return level

    def _headed(self, place: Place) -> _Level:
        """The level that a version or a plan begins. A header that comes again before an end is explained."""
        level = self._reach(place)
        if not level.title and (level.is_versioned or level.plan is not None) and level.plan != len(level.nodes):
            self.problem(
                f"the output begins again before its end, after {len(level.nodes)} results: its header is there twice. "
                "A program that forks without fflush() prints what its buffer holds once for each process"
            )
            if not level.nodes:
                level.plan, level.is_versioned = None, False
        return self._new_level(place)

    def _planned(self, place: Place, count: int, remark: str) -> None:
        level = self._reach(place)
        if level.plan is not None:
            level = self._headed(place)
        level.plan, level.remark = count, _bounded(remark)

    def _result(self, place: Place, found: re.Match[str], *, is_damaged: bool) -> None:
        level = self._reach(place)
        self._results += 1
        level.number += 1
        node = _node(found, level.number)
        if is_damaged:
            node.outcome, node.reason = Outcome.FAILED, "a message of the kernel cuts its line"
        if found[2] and int(found[2]) != level.number:
            self.problem(f"{node.name}: its number is {int(found[2])}, and {level.number} was expected")
            level.number = int(found[2])
        if level.group is not None:
            node.group, node.lines = level.group.nodes, level.group.lines
            level.group = None
        node.lines = [*node.lines, *level.lines][:KEPT_LINES]
        level.nodes.append(node)
        level.lines = []

    def _receive(self, ended: _Level) -> None:
        """Take what has ended into the level that is open: as a group, or, outermost, as results of their own."""
        level, is_outermost = self._levels[-1], len(self._levels) == 1
        self._give_up_group(ended)
        of = f"group {ended.title}" if ended.title else "the output"
        if ended.plan is None and ended.is_versioned and is_outermost:
            self.problem(f"{of} has no plan: it may be cut short")
        if ended.plan is not None and ended.plan != len(ended.nodes):
            self.problem(f"{of}: {ended.plan} tests were planned, and there are {len(ended.nodes)} results")
        if ended.plan == 0 and not ended.nodes and is_outermost:
            directive = _DIRECTIVE.match(f"# {ended.remark}")
            reason = (directive[2] if directive else ended.remark) or "the plan has no test"
            ended.nodes.append(_Node("all", Outcome.SKIPPED, reason))
        if is_outermost:
            level.nodes += ended.nodes
        else:
            self._give_up_group(level)
            level.group = ended

    def _give_up_group(self, level: _Level) -> None:
        """The group that ended last gets a result, which it has none of."""
        if level.group is None:
            return
        name, lines = level.group.title or "unnamed group", level.group.lines
        self.problem(f"group {name} has no result of its own: the output is cut short, or a line is lost")
        level.nodes.append(_Node(name, Outcome.FAILED, "it has no result of its own", lines, level.group.nodes))
        level.number += 1
        level.group = None


def _node(found: re.Match[str], number: int) -> _Node:
    text, is_ok, reason = found[3], not found[1], ""
    outcome = Outcome.PASSED if is_ok else Outcome.FAILED
    if directive := _DIRECTIVE.search(text):
        word, reason = directive[1].upper(), directive[2]
        if word == "SKIP":
            outcome = Outcome.SKIPPED
        elif word == "XFAIL" or (word == "TODO" and not is_ok):  # "ok ... # TODO" is better than expected
            outcome = Outcome.XFAILED
        elif word in {"TIMEOUT", "ERROR"}:
            outcome, reason = Outcome.FAILED, f"{word} {reason}"
        text = text[: directive.start()]
    elif diagnostic := _DIAGNOSTIC.search(text):
        text, reason = text[: diagnostic.start()], diagnostic[1]
    return _Node(_bounded(text) or f"test {found[2] or number}", outcome, _bounded(reason))


def _tests(nodes: Sequence[_Node], path: str) -> Iterator[TestResult]:
    """The tests that have none below them; and groups that failed though no test in them did."""
    for node in nodes:
        name = f"{path}{node.name}"
        below = list(_tests(node.group, f"{name}/"))
        yield from below
        is_explained = any(test.outcome is Outcome.FAILED for test in below)
        if not below or (node.outcome is Outcome.FAILED and not is_explained):
            reason = node.reason or ("the group failed, and no test in it did" if below else "")
            yield TestResult(name, node.outcome, reason, tuple(node.lines))


def _bounded(text: str) -> str:
    return text.strip()[:NAME_MAX]


# The output of the kernel's tools/testing/selftests/ftrace/ftracetest, as results.
#
# It prints a test's number and description, then the test's own output as its options say, and behind a tab the
# result. At the end it counts::
#
#     [1] Kprobe dynamic event - adding and removing      [PASS]
#     [2] (instance)  Test creation and deletion of trace instances       [UNSUPPORTED]
#
#     # of passed:  1
#
# With ``--ktap`` (Linux 6.3) the script prints KTAP instead.

_TITLE = "=== Ftrace unit tests ==="
_BEGINNING = re.compile(r"\[(\d{1,6})\]( \(instance\) )?(.*)")
_ENDING = re.compile(r"(.*)\t\[(PASS|FAIL|UNRESOLVED|UNTESTED|UNSUPPORTED|XFAIL|UNDEFINED)\]")
_COUNT = re.compile(r"# of (\w{1,20})(?:\(test bug\))?:\s*(\d{1,6})")
_FIRST = re.compile(r"(?:.*\t)?\[.*|# of .*|\t")
"""What a line of the script's own may begin with, its title apart; all else is a test's output."""

# As the script's own KTAP output has them: what is indeterminate is not ok. Before it the word that it counts them by.
_OUTCOMES = {
    "PASS": ("passed", Outcome.PASSED),
    "FAIL": ("failed", Outcome.FAILED),
    "UNRESOLVED": ("unresolved", Outcome.FAILED),
    "UNTESTED": ("untested", Outcome.SKIPPED),
    "UNSUPPORTED": ("unsupported", Outcome.SKIPPED),
    "XFAIL": ("xfailed", Outcome.XFAILED),
    "UNDEFINED": ("undefined", Outcome.FAILED),
}


@dataclass
class _Test:
    number: int
    name: str
    word: str = ""
    is_damaged: bool = False
    lines: list[str] = field(default_factory=list)

    def add(self, line: str, *, is_damaged: bool) -> None:
        self.is_damaged |= is_damaged
        ending = None if self.word else _ENDING.fullmatch(line)
        if ending:
            self.word, line = ending[2], ending[1]
        if line and len(self.lines) < KEPT_LINES:
            self.lines.append(line)

    def result(self) -> TestResult:
        outcome, reason = Outcome.FAILED, "it has no result: the output is cut short, or a line is lost"
        if self.word and self.is_damaged:
            reason = "a message of the kernel cuts its line"
        elif self.word:
            outcome = _OUTCOMES[self.word][1]
            reason = "" if self.word in {"PASS", "FAIL", "XFAIL"} else self.word.lower()
        return TestResult(self.name, outcome, reason, tuple(self.lines))


def parse_ftracetest(text: str) -> TestRun:
    """The tests of one run of the script; what is wrong with its output is among the problems."""
    tests: list[_Test] = []
    problems: list[str] = []
    counts: dict[str, int] = {}
    is_titled = False
    try:
        for printed in printed_lines(text, _counts):
            line, last = printed.text, tests[-1].number if tests else 0
            begun, is_damaged = _BEGINNING.fullmatch(line), _is_damaged(printed)
            if is_damaged and len(problems) < PROBLEMS_MAX:
                problems.append(f"a message of the kernel cuts the line {line[:NAME_MAX]!r}: it may be damaged")
            if line == _TITLE:
                is_titled = True
            elif begun and int(begun[1]) > last:
                if len(tests) == RESULTS_MAX:
                    problems.append(f"it has more than {RESULTS_MAX} results; the others were not looked at")
                    break
                tests.append(_begun(begun, is_damaged=is_damaged))
                problems += _missing(last, tests[-1].number)
            elif counted := _COUNT.fullmatch(line):
                counts[counted[1]] = int(counted[2])
            elif tests:
                tests[-1].add(line, is_damaged=is_damaged)
    except TooManyLinesError as error:
        problems.append(str(error))
    if not is_titled:
        problems.append("it is no output of ftracetest: its title is missing")
    return TestRun(tuple(test.result() for test in tests), (*problems, *_miscounted(tests, counts)))


def _missing(last: int, number: int) -> list[str]:
    return [f"the lines of tests {last + 1} to {number - 1} are missing"] if number > last + 1 else []


def _miscounted(tests: Sequence[_Test], counts: Mapping[str, int]) -> list[str]:
    if "passed" not in counts:
        return ["it ends before the script counts its results: it is cut short"]
    found = Counter(_OUTCOMES[test.word][0] for test in tests if test.word)
    return [
        f"the script counts {counts[name]} {name}, and {found[name]} such results were printed"
        for name, _ in _OUTCOMES.values()
        if counts.get(name, found[name]) != found[name]
    ]


def _is_damaged(line: PrintedLine) -> bool:
    """Whether a message has cut a line, other than where the script waits: between a test's description and result."""
    if line.is_cut:
        return _BEGINNING.fullmatch(line.text) is None or _ENDING.fullmatch(line.text) is not None
    return line.is_rest and not line.text.startswith("\t[")


def _counts(before: str) -> bool:
    """Whether a line that begins so is the script's own, and no output of a test."""
    return _FIRST.fullmatch(before) is not None or any(one.startswith(before.rstrip()) for one in (_TITLE, "# of "))


def _begun(found: re.Match[str], *, is_damaged: bool) -> _Test:
    ending = _ENDING.fullmatch(found[3])
    description = (ending[1] if ending else found[3]).strip()
    name = f"{description or f'test {found[1]}'}{' (instance)' if found[2] else ''}"
    return _Test(int(found[1]), name[:NAME_MAX], ending[2] if ending else "", is_damaged)
