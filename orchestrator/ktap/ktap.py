# SPDX-License-Identifier: GPL-2.0-only
"""Parse the output of tests: KTAP 1, TAP 13 and 14.

KTAP is described in the kernel's Documentation/dev-tools/ktap.rst. Groups of tests are nested by indentation of any
width, as in KUnit, or by the "# " that kselftest's runner puts before a program's lines. The result of a group comes
after the group::

    KTAP version 1
    1..1
        # Subtest: kprobes_test
        1..2
        ok 1 test_kprobe
        not ok 2 test_kretprobe
    not ok 1 kprobes_test

Lines between ``---`` and ``...``, indented further than the result above them, are YAML data about that result.
KUnit's parametrised tests have no plan, and its debugfs files once had neither version nor plan: a missing plan is a
problem only if the output begins with a version line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.ktap.printed_lines import LineCut, PrintedLine, TooManyLinesError, printed_lines
from orchestrator.ktap.results import KEPT_LINES, NAME_MAX, PROBLEMS_MAX, RESULTS_MAX, TestOutcome, TestResult, TestRun
from orchestrator.plain_text import counted

DEPTH_MAX = 12
"""Levels of nesting; KUnit has three, kselftest's runner adds one."""

_VERSION = re.compile(r"(K?TAP) version (\d{1,3})")
_PLAN = re.compile(r"1\.\.(\d{1,9})(?:\s*#\s*(.*))?")
_RESULT = re.compile(r"(not )?ok(?=\s|$)(?:\s+(\d{1,9})(?=\s|$))?\s*(?:-(?:\s+|$))?(.*)")
_DIRECTIVE = re.compile(r"(?:^|(?<=[\s\0]))#\s*(SKIP|TODO|XFAIL|TIMEOUT|ERROR)\S*\s*(.*)", re.IGNORECASE)
_DIAGNOSTIC = re.compile(r"(?:^|(?<=\s))#\s+(.*)")
_SUBTEST = re.compile(r"#\s*Subtest(?::\s*(.*))?")
_BAIL_OUT = re.compile(r"Bail out!\s*(.*)", re.IGNORECASE)
_HASHES = re.compile(r"(?:# ){0,3}")
_BEGINNINGS = ("not ok", "ok", "1..", "TAP version", "KTAP version", "Bail out!")
_ESCAPED = re.compile(r"\\([\\#])")
_HIDDEN = {"\\": "\0", "#": "\1"}
"""Placeholders of escaped characters during parsing; no line contains them."""

Place = tuple[int, int]
"""The start of a line's words: after this many "# " and this many characters of indentation."""


@dataclass
class _Node:
    """A result line, and the tests of its group."""

    name: str
    outcome: TestOutcome
    reason: str = ""
    lines: list[str] = field(default_factory=list)
    group: list[_Node] = field(default_factory=list)


@dataclass
class _Block:
    """An open YAML block about a result."""

    node: _Node
    place: Place


@dataclass
class _Level:
    """The lines of one indentation, up to a line with less.

    ``has_escapes`` says whether a backslash escapes, as in TAP 14; None without a version line. ``remark`` is that of
    the plan.
    """

    place: Place
    title: str = ""
    is_versioned: bool = False
    has_escapes: bool | None = None
    plan: int | None = None
    remark: str = ""
    nodes: list[_Node] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    number: int = 0
    group: _Level | None = None
    """The group that ended last; the next result at this level is the group's."""


def parse_ktap(text: str) -> TestRun:
    """Parse a program's or a kernel's output; malformed output gives problems."""
    parser = _Parser()
    try:
        for line in printed_lines(text, parser.cut):
            if not parser.take(line):
                break
    except TooManyLinesError as error:
        parser.problem(str(error))
    return parser.finish()


class _Parser:
    """``_levels`` are the open levels by indentation; the first only collects ended ones."""

    def __init__(self) -> None:
        self._levels = [_Level((-1, 0))]
        self._problems: list[str] = []
        self._results = 0
        self._title: tuple[Place, str] | None = None  # of the next group
        self._block: _Block | None = None
        self._last: _Block | None = None  # a result that a block may follow

    def problem(self, sentence: str) -> None:
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(sentence)

    def take(self, line: PrintedLine) -> bool:
        """Parse a line; False if parsing ends with it."""
        place, words = self._placed(line.text)
        if line.cut_at is not None:
            self.problem(f"a kernel message cuts the line {_bounded(words)!r}: it may be damaged")
        if self._block is not None and self._is_data(self._block, line):
            return True
        if bail_out := _BAIL_OUT.match(words):
            self.problem(f"the tests bailed out: {self._bounded(bail_out[1]) or 'without a reason'}")
            return place[0] > 0  # after "# " only one program bailed out
        if self._title is not None and self._is_structure(line.text):
            self._titled(*self._title, place)
        if version := _VERSION.fullmatch(words):
            level = self._headed(place)
            level.is_versioned, level.has_escapes = True, version[1] == "TAP" and int(version[2]) >= 14
        elif subtest := _SUBTEST.fullmatch(words):
            self._reach(place)
            self._title = place, self._bounded(subtest[1] or "")
        elif plan := _PLAN.fullmatch(words):
            self._planned(place, int(plan[1]), plan[2] or "")
        elif match := self._result_in(place, words):
            if self._results == RESULTS_MAX:
                self.problem(f"it has more than {RESULTS_MAX} results; the others were not parsed")
                return False
            self._result(place, match, is_cut=line.cut_at is not None)
        else:
            self._other(place, words, line)
        return True

    def cut(self, before: str, following: str | None) -> LineCut:
        """Whether a kernel message after ``before`` has cut a line that continues with ``following``.

        A line that cannot be a result, a plan or the like may also quote a message; the next line is then whole.
        """
        place, words = self._placed(before)
        if self._block is not None and place >= self._block.place and (words or place > self._block.place):
            # A block's lines may quote anything.
            return LineCut.JOINED if words and following == "" else LineCut.NONE
        if following is None and not words:
            return LineCut.NONE
        if words == "#" and following is not None and following.startswith(" "):
            return LineCut.JOINED
        is_whole = following is None or following.lstrip().startswith("#") or self._is_structure(following)
        if not is_whole:
            return LineCut.JOINED
        if self._is_structure(before):
            return LineCut.APART
        if place[0] and not words:
            return LineCut.NONE  # a program under kselftest's runner prints the kernel's log
        may_begin = _RESULT.fullmatch(words) or any(beginning.startswith(words.rstrip()) for beginning in _BEGINNINGS)
        return LineCut.JOINED if may_begin else LineCut.NONE

    def finish(self) -> TestRun:
        """The parsed results. Groups that are still open have no result."""
        if self._block is not None:
            self._broken(self._block)
        if self._title is not None:
            self._titled(*self._title, self._title[0])
        while len(self._levels) > 1:
            self._receive(self._levels.pop())
        return TestRun(tuple(_tests(self._levels[0].nodes, "")), tuple(self._problems))

    def _placed(self, line: str) -> tuple[Place, str]:
        """A line's place and its words. "# " begins a program's line after one with a version or a plan."""
        hashes = len(_HASHES.match(line)[0]) // 2  # type: ignore[index]  # it also matches an empty text
        for nesting in range(hashes, -1, -1):
            rest = line[2 * nesting :]
            words = rest.lstrip()
            is_open = any(level.place[0] == nesting for level in self._levels)
            if nesting == 0 or is_open or _VERSION.fullmatch(words) or _PLAN.fullmatch(words):
                break
        return (nesting, len(rest) - len(words)), words

    def _is_structure(self, line: str) -> bool:
        """Whether a line is a version, a title, a plan, a result or "Bail out!"."""
        place, words = self._placed(line)
        is_matched = any(pattern.fullmatch(words) for pattern in (_VERSION, _SUBTEST, _PLAN, _BAIL_OUT))
        return is_matched or self._result_in(place, words) is not None

    def _result_in(self, place: Place, words: str) -> re.Match[str] | None:
        """A result line. The number is optional after a version or plan line of the same level (TAP)."""
        match = _RESULT.fullmatch(words)
        if match is None or match[2]:
            return match
        is_announced = any(
            level.place == place and (level.is_versioned or level.plan is not None) for level in self._levels
        )
        return match if is_announced else None

    def _is_data(self, block: _Block, line: PrintedLine) -> bool:
        """Parse a line of an open block; False if the block ended before it."""
        nesting, indentation = block.place
        rest = line.text.removeprefix("# " * nesting)
        is_inside = len(line.text) - len(rest) == 2 * nesting
        place = len(rest) - len(rest.lstrip()) if is_inside else -1
        words = rest.strip()
        if words == "..." and is_inside and place <= indentation:
            self._block = None
            if place < indentation:
                self._broken(block)
        elif place < indentation and self._is_structure(line.text):
            self._broken(block)
            self._block = None
            return False
        elif place < indentation and not (line.is_logged or line.text.startswith("#") or not words):
            self._broken(block)
        keep(block.node.lines, words)
        return True

    def _broken(self, block: _Block) -> None:
        sentence = f"the YAML block about {block.node.name} is not terminated: the output is truncated or damaged"
        if sentence not in self._problems:
            self.problem(sentence)

    def _bounded(self, text: str) -> str:
        return _bounded(_shown(_hidden(text)) if self._has_escapes() else text)

    def _has_escapes(self) -> bool:
        return next((level.has_escapes for level in reversed(self._levels) if level.has_escapes is not None), False)

    def _reach(self, place: Place) -> _Level:
        """Open the level of a place, and end deeper ones."""
        while self._levels[-1].place > place:
            ended = self._levels.pop()
            if self._levels[-1].place < place:  # the output begins inside a group
                self._levels.append(_Level(place))
            self._receive(ended)
        if self._levels[-1].place < place and len(self._levels) <= DEPTH_MAX:
            self._levels.append(_Level(place))
        return self._levels[-1]

    def _new_level(self, place: Place) -> _Level:
        """An empty level at a place, after ending a group or an earlier output there."""
        level = self._reach(place)
        if level.is_versioned or level.plan is not None or level.nodes or level.group is not None:
            self._receive(self._levels.pop())
            level = _Level(level.place)
            self._levels.append(level)
        return level

    def _headed(self, place: Place) -> _Level:
        """The level that a version or a plan begins. Explains a repeated header."""
        level = self._reach(place)
        if not level.title and (level.is_versioned or level.plan is not None) and level.plan != len(level.nodes):
            self.problem(
                f"the output starts again after {len(level.nodes)} results: its header is repeated. A program that "
                "forks without fflush() prints its buffer once per process"
            )
            if not level.nodes:
                level.plan, level.is_versioned = None, False
        return self._new_level(place)

    def _titled(self, place: Place, title: str, first: Place) -> None:
        """Give a group its title, which has the indentation of its ``first`` line (KUnit), or less (TAP 14)."""
        self._title = None
        level = self._reach(max(place, first))
        if first <= place and (level.title or level.plan is not None or level.nodes):  # it may follow its version line
            level = self._new_level(place)
        level.title = title

    def _planned(self, place: Place, count: int, remark: str) -> None:
        level = self._reach(place)
        if level.plan is not None:
            level = self._headed(place)
        level.plan, level.remark = count, self._bounded(remark)

    def _result(self, place: Place, match: re.Match[str], *, is_cut: bool) -> None:
        level = self._reach(place)
        self._results += 1
        level.number += 1
        node = _node(match, level.number, has_escapes=self._has_escapes())
        if is_cut:
            node.outcome, node.reason = TestOutcome.FAILED, "a kernel message cuts its line"
        if match[2] and int(match[2]) != level.number:
            self.problem(f"{node.name}: found number {int(match[2])}, expected {level.number}")
            level.number = int(match[2])
        if level.group is not None:
            node.group, node.lines = level.group.nodes, level.group.lines
            level.group = None
        node.lines = [*node.lines, *level.lines][:KEPT_LINES]
        level.nodes.append(node)
        level.lines = []
        self._last = _Block(node, place)

    def _other(self, place: Place, words: str, line: PrintedLine) -> None:
        if self._last is not None and words == "---" and self._last.place[0] == place[0] and self._last.place < place:
            self._block = _Block(self._last.node, place)
            keep(self._last.node.lines, words)
        else:
            keep(self._levels[-1].lines, words)
        if words and not words.startswith("#") and not line.is_logged:
            self._last = None

    def _receive(self, ended: _Level) -> None:
        """Add an ended level to the open one: as a group, or at the outermost level as results."""
        level, is_outermost = self._levels[-1], len(self._levels) == 1
        self._give_up_group(ended)
        of = f"group {ended.title}" if ended.title else "the output"
        if ended.plan is None and ended.is_versioned and is_outermost:
            self.problem(f"{of} has no plan: it may be truncated")
        if ended.plan is not None and ended.plan != len(ended.nodes):
            self.problem(f"{of}: planned {counted(ended.plan, 'test')}, found {counted(len(ended.nodes), 'result')}")
        if ended.plan == 0 and not ended.nodes and is_outermost:
            directive = _DIRECTIVE.match(f"# {ended.remark}")
            reason = (directive[2] if directive else ended.remark) or "the plan has no test"
            ended.nodes.append(_Node("all", TestOutcome.SKIPPED, reason))
        if is_outermost:
            level.nodes += ended.nodes
        else:
            self._give_up_group(level)
            level.group = ended

    def _give_up_group(self, level: _Level) -> None:
        """Add a failed result for the group that ended last, which has none."""
        if level.group is None:
            return
        name, lines = level.group.title or "unnamed group", level.group.lines
        self.problem(f"group {name} has no result: the output is truncated, or a line is lost")
        level.nodes.append(_Node(name, TestOutcome.FAILED, "it has no result", lines, level.group.nodes))
        level.number += 1
        level.group = None


def _node(match: re.Match[str], number: int, *, has_escapes: bool) -> _Node:
    text, is_ok, reason = _hidden(match[3]) if has_escapes else match[3], not match[1], ""
    outcome = TestOutcome.PASSED if is_ok else TestOutcome.FAILED
    if directive := _DIRECTIVE.search(text):
        word, reason = directive[1].upper(), directive[2]
        if word == "SKIP":
            outcome = TestOutcome.SKIPPED
        elif word == "XFAIL" or (word == "TODO" and not is_ok):  # "ok ... # TODO" is better than expected
            outcome = TestOutcome.XFAILED
        elif word in {"TIMEOUT", "ERROR"}:
            outcome, reason = TestOutcome.FAILED, f"{word} {reason}"
        text = text[: directive.start()]
    elif diagnostic := _DIAGNOSTIC.search(text):
        text, reason = text[: diagnostic.start()], diagnostic[1]
    return _Node(_bounded(_shown(text)) or f"test {match[2] or number}", outcome, _bounded(_shown(reason)))


def _hidden(text: str) -> str:
    """Text with placeholders for escaped characters."""
    return _ESCAPED.sub(lambda match: _HIDDEN[match[1]], text)


def _shown(text: str) -> str:
    for character, hidden in _HIDDEN.items():
        text = text.replace(hidden, character)
    return text


def keep(lines: list[str], words: str) -> None:
    """Keep a line of a test's output, up to ``KEPT_LINES``."""
    if words and len(lines) < KEPT_LINES:
        lines.append(words)


def _tests(nodes: Sequence[_Node], path: str) -> Iterator[TestResult]:
    """The tests without nested ones, and failed groups without a failed test."""
    for node in nodes:
        name = f"{path}{node.name}"
        below = list(_tests(node.group, f"{name}/"))
        yield from below
        is_explained = any(test.outcome is TestOutcome.FAILED for test in below)
        if not below or (node.outcome is TestOutcome.FAILED and not is_explained):
            reason = node.reason or ("the group failed, but none of its tests" if below else "")
            yield TestResult(name, node.outcome, reason, tuple(node.lines))


def _bounded(text: str) -> str:
    return text.strip()[:NAME_MAX]
