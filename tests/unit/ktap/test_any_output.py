# SPDX-License-Identifier: GPL-2.0-only
"""Can any output crash a parser, or make it lose a result, by what hypothesis invents?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ktap.ktap import DEPTH_MAX, LINE_MAX, parse_ftracetest, parse_ktap
from orchestrator.ktap.results import KEPT_LINES, NAME_MAX, TestRun

PARSERS = [parse_ktap, parse_ftracetest]

# What the forms are made of, so that most lines mean something.
RESULTS = ["ok 1", "not ok", "ok", "- ", "# ", "#", "# SKIP", "# TODO", "1..2", "1..0", "99999", " ", "    ", "\n"]
GROUPS = ["KTAP version 1", "TAP version 13", "# Subtest: x", "Bail out! ", "---", "..."]
FTRACE = ["=== Ftrace unit tests ===", "[1] ", "[2] (instance) ", "\t[PASS]", "\t[FAIL]", "# of passed: 1"]
LOG = ["[    1.000001] ", "<6>", "\x1b[1m", "\r", "\0", "é", "\t"]
PIECES = st.sampled_from([*RESULTS, *GROUPS, *FTRACE, *LOG])
OUTPUTS = st.lists(PIECES | st.text(max_size=5), max_size=80).map("".join)
NAMES = st.from_regex(r"[a-z][a-z_/.:()-]{0,20}[a-z]", fullmatch=True)


@dataclass(frozen=True)
class Told:
    """A test to be printed, with those of its group."""

    name: str
    is_ok: bool
    group: tuple[Told, ...] = ()

    def lines(self, number: int, indentation: str) -> list[str]:
        lines = []
        if self.group:
            inner = indentation + "    "
            lines = [f"{inner}# Subtest: {self.name}", f"{inner}1..{len(self.group)}"]
            for place, told in enumerate(self.group, 1):
                lines += told.lines(place, inner)
        return [*lines, f"{indentation}{'' if self.is_ok else 'not '}ok {number} - {self.name}"]

    def leaves(self, path: str = "") -> list[tuple[str, str]]:
        if not self.group:
            return [(path + self.name, "passed" if self.is_ok else "failed")]
        return [leaf for told in self.group for leaf in told.leaves(f"{path}{self.name}/")]


LEAVES = st.builds(Told, NAMES, st.booleans())
TREES = st.recursive(
    LEAVES,
    lambda inner: st.builds(
        lambda name, group: Told(name, all(told.is_ok for told in group), tuple(group)),
        NAMES,
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=OUTPUTS)
def test_no_output_crashes_a_parser(parse: Callable[[str], TestRun], text: str) -> None:
    run = parse(text)
    depth = DEPTH_MAX + 1
    for result in run.results:
        assert result.name
        assert result.name.isprintable() or not text.isprintable()
        assert len(result.name) <= depth * (NAME_MAX + 1) + len(" (instance)")
        assert len(result.lines) <= KEPT_LINES
        assert all(len(line) <= LINE_MAX for line in result.lines)
    assert all(run.problems)


@given(tree=st.lists(TREES, min_size=1, max_size=4))
def test_no_result_is_lost(tree: list[Told]) -> None:
    lines = ["KTAP version 1", f"1..{len(tree)}"]
    for number, told in enumerate(tree, 1):
        lines += told.lines(number, "")
    run = parse_ktap("\n".join(lines))
    assert [(result.name, str(result.outcome)) for result in run.results] == [leaf for t in tree for leaf in t.leaves()]
    assert run.problems == ()


@given(tree=TREES, cut=st.integers(min_value=0))
def test_a_lost_line_is_noticed(tree: Told, cut: int) -> None:
    lines = ["KTAP version 1", "1..1", *tree.lines(1, "")]
    lost = 1 + cut % (len(lines) - 1)  # all but the version, without which an output needs no plan
    text = "\n".join(line for number, line in enumerate(lines) if number != lost)
    whole, run = parse_ktap("\n".join(lines)), parse_ktap(text)
    is_title = "# Subtest" in lines[lost]  # the group's result has its name as well
    is_plan = lines[lost].startswith(" ") and "1.." in lines[lost]  # KUnit's parametrised tests have none either
    assert run.problems or run.results != whole.results or is_title or is_plan
