# SPDX-License-Identifier: GPL-2.0-only
"""Output in KTAP 1 and in TAP 13 and 14, as results.

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

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.ktap.printed_lines import TooManyLinesError, printed_lines
from orchestrator.ktap.results import KEPT_LINES, NAME_MAX, RESULTS_MAX, Outcome, TestResult, TestRun

DEPTH_MAX = 12
"""Levels of nesting; KUnit has three, kselftest's runner adds one."""

_PROBLEMS_MAX = 100

_VERSION = re.compile(r"K?TAP version \d{1,3}")
_PLAN = re.compile(r"1\.\.(\d{1,9})(?:\s*#\s*(.*))?")
_RESULT = re.compile(r"(not )?ok(?=\s|$)(?:\s+(\d{1,9})(?=\s|$))?\s*(?:-(?:\s+|$))?(.*)")
_DIRECTIVE = re.compile(r"(?:^|(?<=\s))#\s*(SKIP|TODO|XFAIL|TIMEOUT|ERROR)\S*\s*(.*)", re.IGNORECASE)
_DIAGNOSTIC = re.compile(r"(?:^|(?<=\s))#\s+(.*)")
_SUBTEST = re.compile(r"#\s*Subtest:\s*(.*)")
_BAIL_OUT = re.compile(r"Bail out!\s*(.*)")
_HASHES = re.compile(r"(?:# ){0,3}")

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
    """What stands at one place, up to a line that stands farther out."""

    place: Place
    title: str = ""
    is_versioned: bool = False
    plan: int | None = None
    nodes: list[_Node] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    number: int = 0
    group: _Level | None = None
    """The group that ended last; the next result at this place is its own."""


def parse_ktap(text: str) -> TestRun:
    """The tests in a program's or a kernel's output; what is wrong with it is among the problems."""
    parser = _Parser()
    try:
        for line in printed_lines(text):
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
        self._block: list[str] | None = None  # where the lines of TAP's YAML block go: it is about the result before

    def problem(self, sentence: str) -> None:
        if len(self._problems) < _PROBLEMS_MAX:
            self._problems.append(sentence)

    def take(self, line: str) -> bool:
        """Take a line; False where it is the last one that counts."""
        place, words = self._placed(line)
        if bail_out := _BAIL_OUT.match(words):
            self.problem(f"the tests were given up: {_bounded(bail_out[1]) or 'no reason is given'}")
            return False
        if _VERSION.fullmatch(words):
            self._new_level(place).is_versioned = True
        elif subtest := _SUBTEST.fullmatch(words):
            self._titled(place, _bounded(subtest[1]))
        elif plan := _PLAN.fullmatch(words):
            self._planned(place, int(plan[1]), plan[2] or "")
        elif (found := _RESULT.fullmatch(words)) and (found[2] or self._is_announced(place)):
            if self._results == RESULTS_MAX:
                self.problem(f"it has more than {RESULTS_MAX} results; the others were not looked at")
                return False
            self._result(place, found)
        else:
            self._other(words)
        return True

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

    def _is_announced(self, place: Place) -> bool:
        """Whether a version or a plan says that the lines at a place are results: TAP's may have no numbers."""
        return any(level.place == place and (level.is_versioned or level.plan is not None) for level in self._levels)

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

    def _titled(self, place: Place, title: str) -> None:
        level = self._reach(place)
        if level.title or level.plan is not None or level.nodes:  # it may follow its version line
            level = self._new_level(place)
        level.title = title

    def _planned(self, place: Place, count: int, remark: str) -> None:
        level = self._reach(place)
        if level.plan is not None:
            level = self._new_level(place)
        level.plan = count
        if count == 0 and len(self._levels) == 2 and not level.nodes:
            directive = _DIRECTIVE.match(f"# {remark}")
            reason = _bounded(directive[2] if directive else remark)
            level.nodes.append(_Node("all", Outcome.SKIPPED, reason or "the plan has no test"))

    def _result(self, place: Place, found: re.Match[str]) -> None:
        level = self._reach(place)
        self._results += 1
        level.number += 1
        node = _node(found, level.number)
        if found[2] and int(found[2]) != level.number:
            self.problem(f"{node.name}: its number is {int(found[2])}, and {level.number} was expected")
            level.number = int(found[2])
        if level.group is not None:
            node.group, node.lines = level.group.nodes, level.group.lines
            level.group = None
        node.lines = [*node.lines, *level.lines][:KEPT_LINES]
        level.nodes.append(node)
        level.lines = []
        self._block = None

    def _other(self, words: str) -> None:
        level = self._levels[-1]
        if words == "---" and level.nodes:
            self._block = level.nodes[-1].lines
        lines = level.lines if self._block is None else self._block
        if words and len(lines) < KEPT_LINES:
            lines.append(words)
        if words == "...":
            self._block = None

    def _receive(self, ended: _Level) -> None:
        """Take what has ended into the level that is open: as a group, or, outermost, as results of their own."""
        level, is_outermost = self._levels[-1], len(self._levels) == 1
        self._give_up_group(ended)
        of = f"group {ended.title}" if ended.title else "the output"
        if ended.plan is None and ended.is_versioned and is_outermost:
            self.problem(f"{of} has no plan: it may be cut short")
        if ended.plan and ended.plan != len(ended.nodes):
            self.problem(f"{of}: {ended.plan} tests were planned, and there are {len(ended.nodes)} results")
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
