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

What stands between ``---`` and ``...``, farther in than the result above them, is YAML about that result, and data.
KUnit's parametrised tests have no plan, and the files of its debugfs had neither version nor plan at first: that there
is no plan is a problem only where a version line begins an output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.ktap.printed_lines import Cut, PrintedLine, TooManyLinesError, printed_lines
from orchestrator.ktap.results import KEPT_LINES, NAME_MAX, PROBLEMS_MAX, RESULTS_MAX, Outcome, TestResult, TestRun

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
"""What stands for an escaped character while a line is taken apart: no line has these."""

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
class _Block:
    """A block of YAML that has begun at a place: it is about a result."""

    node: _Node
    place: Place


@dataclass
class _Level:
    """What stands at one place, up to a line that stands farther out.

    ``has_escapes`` is None where no version line says whether a backslash escapes, as it does in TAP 14. ``remark`` is
    the plan's.
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
    """The group that ended last; the next result at this place is its own."""


def parse_ktap(text: str) -> TestRun:
    """The tests in a program's or a kernel's output; what is wrong with it is among the problems."""
    parser = _Parser()
    try:
        for line in printed_lines(text, parser.cut):
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
        self._title: tuple[Place, str] | None = None  # of the group whose first line is still to come
        self._block: _Block | None = None
        self._last: _Block | None = None  # a result line that a block may follow, and its place

    def problem(self, sentence: str) -> None:
        if len(self._problems) < PROBLEMS_MAX:
            self._problems.append(sentence)

    def take(self, line: PrintedLine) -> bool:
        """Take a line; False where it is the last one that counts."""
        place, words = self._placed(line.text)
        if line.cut_at is not None:
            self.problem(f"a message of the kernel cuts the line {_bounded(words)!r}: it may be damaged")
        if self._block is not None and self._is_data(self._block, line):
            return True
        if bail_out := _BAIL_OUT.match(words):
            self.problem(f"the tests were given up: {self._bounded(bail_out[1]) or 'no reason is given'}")
            return place[0] > 0  # behind "# " only one program has given up
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
        elif found := self._result_in(place, words):
            if self._results == RESULTS_MAX:
                self.problem(f"it has more than {RESULTS_MAX} results; the others were not looked at")
                return False
            self._result(place, found, is_cut=line.cut_at is not None)
        else:
            self._other(place, words, line)
        return True

    def cut(self, before: str, following: str | None) -> Cut:
        """Whether a message of the kernel's behind ``before`` has cut a line, which ``following`` goes on with.

        A line that cannot be a result, a plan or the like may also quote a message: the next one is then whole.
        """
        place, words = self._placed(before)
        if self._block is not None and place >= self._block.place and (words or place > self._block.place):
            # A block's lines may quote anything; what stands outside is seen.
            return Cut.JOINED if words and following == "" else Cut.NONE
        if following is None and not words:
            return Cut.NONE
        if words == "#" and following is not None and following.startswith(" "):
            return Cut.JOINED
        is_whole = following is None or following.lstrip().startswith("#") or self._is_structure(following)
        if not is_whole:
            return Cut.JOINED
        if self._is_structure(before):
            return Cut.APART
        if place[0] and not words:
            return Cut.NONE  # a program below the runner of kselftest prints the kernel's log
        may_begin = _RESULT.fullmatch(words) or any(one.startswith(words.rstrip()) for one in _BEGINNINGS)
        return Cut.JOINED if may_begin else Cut.NONE

    def finish(self) -> TestRun:
        """All that was taken. Groups that are still open have no result."""
        if self._block is not None:
            self._broken(self._block)
        if self._title is not None:
            self._titled(*self._title, self._title[0])
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

    def _is_data(self, block: _Block, line: PrintedLine) -> bool:
        """Take a line of an open block; False where it is none, and the block has ended."""
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
        _keep(block.node.lines, words)
        return True

    def _broken(self, block: _Block) -> None:
        sentence = f"the block about {block.node.name} has no end where it should: the output is cut short or damaged"
        if sentence not in self._problems:
            self.problem(sentence)

    def _bounded(self, text: str) -> str:
        """Text that a line ends with, as it is meant."""
        return _bounded(_shown(_hidden(text)) if self._has_escapes() else text)

    def _has_escapes(self) -> bool:
        return next((one.has_escapes for one in reversed(self._levels) if one.has_escapes is not None), False)

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

    def _titled(self, place: Place, title: str, first: Place) -> None:
        """Give a group its title, which stands where its ``first`` line does (KUnit), or farther out (TAP 14)."""
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

    def _result(self, place: Place, found: re.Match[str], *, is_cut: bool) -> None:
        level = self._reach(place)
        self._results += 1
        level.number += 1
        node = _node(found, level.number, has_escapes=self._has_escapes())
        if is_cut:
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
        self._last = _Block(node, place)

    def _other(self, place: Place, words: str, line: PrintedLine) -> None:
        if self._last is not None and words == "---" and self._last.place[0] == place[0] and self._last.place < place:
            self._block = _Block(self._last.node, place)
            _keep(self._last.node.lines, words)
        else:
            _keep(self._levels[-1].lines, words)
        if words and not words.startswith("#") and not line.is_logged:
            self._last = None

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


def _node(found: re.Match[str], number: int, *, has_escapes: bool) -> _Node:
    text, is_ok, reason = _hidden(found[3]) if has_escapes else found[3], not found[1], ""
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
    return _Node(_bounded(_shown(text)) or f"test {found[2] or number}", outcome, _bounded(_shown(reason)))


def _hidden(text: str) -> str:
    """Text whose escaped characters mean nothing."""
    return _ESCAPED.sub(lambda found: _HIDDEN[found[1]], text)


def _shown(text: str) -> str:
    for character, hidden in _HIDDEN.items():
        text = text.replace(hidden, character)
    return text


def _keep(lines: list[str], words: str) -> None:
    if words and len(lines) < KEPT_LINES:
        lines.append(words)


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
