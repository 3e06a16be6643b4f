# SPDX-License-Identifier: GPL-2.0-only
"""Is every result of KTAP and TAP read, and everything that is wrong with the output?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ktap.ftracetest import parse_ftracetest
from orchestrator.ktap.ktap import DEPTH_MAX, parse_ktap
from orchestrator.ktap.printed_lines import LINE_MAX
from orchestrator.ktap.results import (
    KEPT_LINES,
    NAME_MAX,
    PROBLEMS_MAX,
    RESULTS_MAX,
    TestOutcome,
    TestResult,
    TestRun,
    judged,
)


def shown(text: str) -> list[str]:
    """The results as text: outcome, name, reason."""
    return [" ".join(filter(None, (r.outcome, r.name, r.reason))) for r in parse_ktap(text).results]


def problems(text: str) -> list[str]:
    return list(parse_ktap(text).problems)


GOLDEN = Path(__file__).with_name("golden")
"""What KUnit of Linux 6.1.192 printed in guests of lab-i386-up-kunit, and run_kselftest.sh in one of lab-i386-up."""


KUNIT_OF_OLD = """\
TAP version 14
1..2
    # Subtest: kprobes_test
    1..2
    ok 1 - test_kprobe
    # test_kretprobe: EXPECTATION FAILED at lib/test_kprobes.c:120
    not ok 2 - test_kretprobe
# kprobes_test: pass:1 fail:1 skip:0 total:2
not ok 1 - kprobes_test
    # Subtest: example
    1..3
    ok 1 - example_simple_test
    # example_skip_test: initializing
    ok 2 - example_skip_test # SKIP this test should be skipped
        # Subtest: example_params_test
        ok 1 - example value 2
        ok 2 - example value 1
    ok 3 - example_params_test
# example: pass:2 fail:0 skip:1 total:3
ok 2 - example
"""


def test_files_of_suites_in_a_real_guest() -> None:
    text = (GOLDEN / "kunit-debugfs-6.1.txt").read_text()
    run = parse_ktap(text)
    assert run.problems == ()
    assert shown(text) == [
        "passed example/example_simple_test",
        "skipped example/example_skip_test this test should be skipped",
        "skipped example/example_mark_skipped_test this test should be skipped",
        "passed example/example_all_expect_macros_test",
        "passed kprobes_test/test_kprobe",
        "passed kprobes_test/test_kprobes",
        "passed kprobes_test/test_kretprobe",
        "passed kprobes_test/test_kretprobes",
        "passed kprobes_test/test_stacktrace_on_kretprobe",
        "passed kprobes_test/test_stacktrace_on_nested_kretprobe",
    ]
    assert run.results[2].lines[-1] == "# example_mark_skipped_test: You should see this line."


def test_the_log_of_a_real_boot() -> None:
    run = parse_ktap((GOLDEN / "kunit-log-6.1.txt").read_text())
    assert run.problems == ()
    suites = Counter(result.name.partition("/")[0] for result in run.results)
    assert suites == {"kprobes_test": 6, "list-kunit-test": 39, "hlist": 18}
    assert {result.outcome for result in run.results} == {"passed"}


def test_the_runner_of_kselftest_in_a_real_guest() -> None:
    text = (GOLDEN / "kselftest-6.1.txt").read_text()
    assert problems(text) == []
    assert shown(text) == [
        "passed selftests: demo: nested.sh/first",
        "failed selftests: demo: nested.sh/second",
        "skipped selftests: demo: absent.sh",
        "passed selftests: demo: silent.sh",
    ]


def test_nested_groups_of_kunit() -> None:
    assert problems(KUNIT_OF_OLD) == []
    assert shown(KUNIT_OF_OLD) == [
        "passed kprobes_test/test_kprobe",
        "failed kprobes_test/test_kretprobe",
        "passed example/example_simple_test",
        "skipped example/example_skip_test this test should be skipped",
        "passed example/example_params_test/example value 2",
        "passed example/example_params_test/example value 1",
    ]
    failed = parse_ktap(KUNIT_OF_OLD).results[1]
    assert failed.lines == ("# test_kretprobe: EXPECTATION FAILED at lib/test_kprobes.c:120",)


def test_nested_versions_as_newer_kernels_print_them() -> None:
    text = """\
KTAP version 1
1..1
  KTAP version 1
  # Subtest: example
  # module: kunit_example_test
  1..2
    KTAP version 1
    # Subtest: params
    ok 1 one
    ok 2 two
  # params: pass:2 fail:0 skip:0 total:2
  ok 1 params
  ok 2 last # time=0.5ms
# example: pass:2 fail:0 skip:0 total:2
ok 1 example
"""
    assert problems(text) == []
    assert shown(text) == ["passed example/params/one", "passed example/params/two", "passed example/last time=0.5ms"]


def test_the_file_of_a_suite_in_debugfs_needs_neither_version_nor_plan() -> None:
    text = "    # Subtest: suite\n    1..1\n    ok 1 - one\nok 1 - suite\n"
    assert (shown(text), problems(text)) == (["passed suite/one"], [])


def test_programs_below_the_runner_of_kselftest() -> None:
    text = """\
TAP version 13
1..3
# selftests: timers: posix_timers
# TAP version 13
# 1..2
# # ok 7 this is a diagnostic line
# ok 1 check_itimer
# not ok 2 check_timer_create
# # Totals: pass:1 fail:1 xfail:0 xpass:0 skip:0 error:0
not ok 1 selftests: timers: posix_timers # exit=1
# selftests: timers: silent
# ok 1 so says a script that prints no TAP
ok 2 selftests: timers: silent
# selftests: timers: slow
not ok 3 selftests: timers: slow # TIMEOUT 45 seconds
"""
    assert problems(text) == []
    assert shown(text) == [
        "passed selftests: timers: posix_timers/check_itimer",
        "failed selftests: timers: posix_timers/check_timer_create",
        "passed selftests: timers: silent",
        "failed selftests: timers: slow TIMEOUT 45 seconds",
    ]


@pytest.mark.parametrize(
    ("line", "result"),
    [
        ("ok 1 - name", "passed name"),
        ("ok 1 name", "passed name"),
        ("ok 1", "passed test 1"),
        ("ok - no number", "passed no number"),
        ("not ok", "failed test 1"),
        ("ok 1 # SKIP no such device", "skipped test 1 no such device"),
        ("not ok 1 name # SKIP", "skipped name"),
        ("ok 1 name # skip: because", "skipped name because"),
        ("not ok 1 name # TODO later", "xfailed name later"),
        ("ok 1 name # TODO later", "passed name later"),
        ("not ok 1 name # XFAIL known", "xfailed name known"),
        ("ok 1 name # XFAIL known", "xfailed name known"),
        ("ok 1 name # ERROR harness", "failed name ERROR harness"),
        (r"ok 1 a \# SKIP that is none", "passed a # SKIP that is none"),
        (r"ok 1 - issue \#12, C:\\D, \n", r"passed issue #12, C:\D, \n"),
        (r"ok 1 hello \\# SKIP hash \# character", r"skipped hello \ hash # character"),
        (r"ok 1 hello \\\\\\\# SKIP", r"passed hello \\\# SKIP"),
        ("ok 1 no#SKIP", "passed no#SKIP"),
        ("[    1.234567] ok 1 - logged", "passed logged"),
        ("<6>[    1.234567][    T1] ok 1 - logged", "passed logged"),
        ("\x1b[32mok 1 coloured\x1b[0m", "passed coloured"),
        ("ok 1 " + "n" * 5000, "passed " + "n" * NAME_MAX),
    ],
)
def test_a_result_line(line: str, result: str) -> None:
    text = f"TAP version 14\n1..1\n{line}\n"
    assert (shown(text), problems(text)) == ([result], [])


@pytest.mark.parametrize("line", ["okay 1 x", "not okay", "ok", "ok, then", "OK 1 x", "1..", "I said ok 1 x", "ok1"])
def test_other_lines_are_no_results(line: str) -> None:
    assert parse_ktap(line).results == ()


def test_logs_of_a_kernel_between_the_lines() -> None:
    lines = [f"[    3.{n:06}] {line}" for n, line in enumerate(KUNIT_OF_OLD.splitlines())]
    lines.insert(4, "[    3.000004] random: crng init done")
    assert (shown("\n".join(lines)), problems("\n".join(lines))) == (shown(KUNIT_OF_OLD), [])


def test_a_plan_at_the_end_and_a_block_about_a_result() -> None:
    text = "TAP version 13\nnot ok 1 one\n  ---\n  message: broken\n  ...\nok 2 two\n1..2\n"
    assert (shown(text), problems(text)) == (["failed one", "passed two"], [])
    assert parse_ktap(text).results[0].lines == ("---", "message: broken", "...")
    assert parse_ktap(text).results[1].lines == ()


RESULTS = "TAP version 13\n1..2\n{}ok 1 - a\n  ---\n  output: |\n{}\n  ...\nok 2 - b\n"


DATA = [
    "TAP version 13\n1..1\nnot ok 1 - inner",
    "ok 1 - x\nok 2 - y",
    "1..7",
    "Bail out! is what the child printed",
    "# Subtest: inner\n    1..1\n    not ok 1 deep",
    "---\nnot ok 3\n...",  # of another block, farther in
    "    ok 1 deep\n\nok 1 - behind an empty line",
    "[    1.234567] not ok 9 - a quoted log\nwords [    1.234567] behind which it is",
]


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("word", ["", "not "])
def test_what_stands_in_a_block_is_data_of_the_result_above(data: str, word: str) -> None:
    text = RESULTS.format(word, "\n".join(f"    {line}" for line in data.split("\n")))
    expected = ["failed a" if word else "passed a", "passed b"]
    assert (shown(text), problems(text)) == (expected, [])
    kept = parse_ktap(text).results[0].lines
    assert kept[:2] == ("---", "output: |")
    assert all(line.strip() in kept for line in data.split("\n") if line)
    # Below kselftest's runner, and in a group.
    below = "TAP version 13\n1..1\n" + "".join(f"# {line}".rstrip() + "\n" for line in text.splitlines())
    assert problems(below + f"{word}ok 1 program\n") == []
    assert shown(below + f"{word}ok 1 program\n") == [one.replace(" ", " program/", 1) for one in expected]
    group = "TAP version 14\n1..1\n" + "".join(f"    {line}\n" for line in text.splitlines()[1:])
    assert problems(group + f"{word}ok 1 program\n") == []
    assert shown(group + f"{word}ok 1 program\n") == [one.replace(" ", " program/", 1) for one in expected]


def test_a_message_of_the_kernel_between_the_lines_of_a_block_is_data() -> None:
    text = RESULTS.format("", "[    3.000004] random: crng init done\n    x: 1")
    assert (shown(text), problems(text)) == (["passed a", "passed b"], [])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1..2\nok 1 a\n  ---\n  x: 1\nnot ok 2 b\n", ["passed a", "failed b"]),
        ("1..1\nok 1 a\n  ---\n  x: 1\n", ["passed a"]),
        ("1..2\nok 1 a\n  ---\n  x: 1\n 2\n  ...\nok 2 b\n", ["passed a", "passed b"]),
        ("1..2\nok 1 a\n  ---\n  x: 1\n...\nok 2 b\n", ["passed a", "passed b"]),
    ],
)
def test_a_block_without_its_end_is_a_problem(text: str, names: list[str]) -> None:
    assert shown(text) == names
    assert problems(text) == ["the YAML block about a is not terminated: the output is truncated or damaged"]


@pytest.mark.parametrize("line", ["---", "  --- a/file.c", "  words\n  ---"])
def test_what_begins_no_block(line: str) -> None:
    text = f"1..2\nok 1 a\n{line}\nok 2 b\n"
    assert (shown(text), problems(text)) == (["passed a", "passed b"], [])


def test_escapes_are_those_of_tap_14_alone() -> None:
    line = r"ok 1 - C\\D \#12"
    assert shown(f"TAP version 13\n1..1\n{line}\n") == [r"passed C\\D \#12"]
    assert shown(f"KTAP version 1\n1..1\n{line}\n") == [r"passed C\\D \#12"]
    nested = f"TAP version 14\n1..1\n    # Subtest: \\#1\n    1..1\n    {line}\nok 1 - \\#1\n"
    assert shown(nested) == [r"passed #1/C\D #12"]
    assert problems("TAP version 14\n1..1\nbail out! \\# and \\\\\n")[0] == "the tests bailed out: # and \\"
    assert shown("TAP version 14\n1..0 # SKIP \\#1\n") == ["skipped all #1"]


def test_subtests_of_tap_14_are_announced_farther_out() -> None:
    text = """\
TAP version 14
ok 1 - in the parent

# Subtest: nested
    # Subtest: deep
        ok 1 - below
        1..1
    not ok 1 - deep
    1..1
not ok 2 - nested

# Subtest: empty
    1..0
ok 3 - empty

# Subtest
    ok 1 - name is optional
    1..1
ok 4
1..4
"""
    assert problems(text) == []
    assert shown(text) == [
        "passed in the parent",
        "passed nested/deep/below",
        "failed nested/deep the group failed, but none of its tests",
        "passed empty",
        "passed test 4/name is optional",
    ]


def test_a_header_that_a_forked_program_repeats_is_explained() -> None:
    header = "TAP version 13\n1..2\n"
    again = "the output starts again after {} results: its header is repeated."
    for text, count in [
        (header + header + "ok 1 a\nok 2 b\n", 0),
        (header + "ok 1 a\n" + header + "ok 1 a\nok 2 b\n", 1),
        ("1..2\n1..2\nok 1 a\nok 2 b\n", 0),
        ("TAP version 13\n" + header + "ok 1 a\nok 2 b\n", 0),
        (
            "TAP version 13\n1..1\n# TAP version 13\n# 1..2\n# TAP version 13\n# 1..2\n# ok 1 a\n# ok 2 b\nok 1 p\n",
            0,
        ),
    ]:
        (first, *rest) = problems(text)
        assert first.startswith(again.format(count))
        assert "A program that forks without fflush()" in first
        assert len(rest) == count  # the first copy's own: it lacks a result


def test_a_program_that_gives_up_is_not_the_last_one() -> None:
    text = "TAP version 13\n1..2\n# TAP version 13\n# 1..2\n# Bail out! no memory\nnot ok 1 p\nnot ok 2 q\n"
    assert shown(text) == ["failed p", "failed q"]
    assert "the tests bailed out: no memory" in problems(text)


def test_all_is_skipped() -> None:
    text = "TAP version 13\n1..0 # SKIP not root\n"
    assert (shown(text), problems(text)) == (["skipped all not root"], [])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("KTAP version 1\n1..3\nok 1 a\nok 2 b\n", "the output: planned 3 tests, found 2 results"),
        ("KTAP version 1\n1..1\nok 1 a\nok 2 b\n", "the output: planned 1 test, found 2 results"),
        ("KTAP version 1\nok 1 a\n", "the output has no plan: it may be truncated"),
        ("KTAP version 1\n", "the output has no plan: it may be truncated"),
        ("1..2\nok 1 a\nok 1 b\n", "b: found number 1, expected 2"),
        ("1..2\nok 1 a\nBail out! no memory\nok 2 b\n", "the tests bailed out: no memory"),
        ("1..0 # SKIP all\nok 1 a\n", "the output: planned 0 tests, found 1 result"),
        ("    # Subtest: g\n    1..2\n    ok 1 a\nok 1 g\n", "group g: planned 2 tests, found 1 result"),
    ],
)
def test_faults_of_an_output_are_named(text: str, problem: str) -> None:
    assert problem in problems(text)


def test_an_output_that_a_crash_cut_short() -> None:
    text = "\n".join(KUNIT_OF_OLD.splitlines()[:5]) + "\nBUG: kernel NULL pointer dereference\nOops: 0000 [#1]\n"
    run = parse_ktap(text)
    assert [(test.name, test.outcome) for test in run.results] == [
        ("kprobes_test/test_kprobe", "passed"),
        ("kprobes_test", "failed"),
    ]
    assert run.results[1].lines[-1] == "Oops: 0000 [#1]"
    assert run.problems == (
        "group kprobes_test: planned 2 tests, found 1 result",
        "group kprobes_test has no result: the output is truncated, or a line is lost",
        "the output: planned 2 tests, found 1 result",
    )


def test_a_group_whose_result_is_lost() -> None:
    text = "1..2\n    # Subtest: a\n    1..1\n    ok 1 one\n    # Subtest: b\n    1..1\n    ok 1 two\nok 2 b\n"
    assert shown(text)[0] == "passed a/one"
    assert shown(text)[1] == "failed a it has no result"
    assert shown(text)[2] == "passed b/two"


def test_a_group_that_fails_by_itself() -> None:
    text = "1..1\n    # Subtest: a\n    1..1\n    ok 1 one\n# the suite's exit function failed\nnot ok 1 a\n"
    assert shown(text) == ["passed a/one", "failed a the group failed, but none of its tests"]
    assert parse_ktap(text).results[1].lines == ("# the suite's exit function failed",)


def test_outputs_one_behind_the_other() -> None:
    one = "KTAP version 1\n1..1\nok 1 a\n"
    assert (shown(one + one), problems(one + one)) == (["passed a", "passed a"], [])


def test_results_without_end() -> None:
    text = "".join(f"ok {n} t\n" for n in range(1, RESULTS_MAX + 10))
    run = parse_ktap(text)
    assert len(run.results) == RESULTS_MAX
    assert run.problems == (f"it has more than {RESULTS_MAX} results; the others were not parsed",)


def test_nesting_without_end() -> None:
    text = "".join(" " * depth + f"ok 1 t{depth}\n" for depth in range(100))
    names = [test.name.rpartition("/")[2] for test in parse_ktap(text).results]
    assert {f"t{depth}" for depth in range(100)} <= set(names)


# Can any output crash a parser, or make it lose a result, by what hypothesis invents?

PARSERS = [parse_ktap, parse_ftracetest]


# What the forms are made of, so that most lines mean something.
ANY_RESULTS = ["ok 1", "not ok", "ok", "- ", "# ", "#", "# SKIP", "# TODO", "1..2", "1..0", "99999", " ", "    ", "\n"]


GROUPS = ["KTAP version 1", "TAP version 13", "# Subtest: x", "Bail out! ", "---", "..."]


ANY_FTRACE = ["=== Ftrace unit tests ===", "[1] ", "[2] (instance) ", "\t[PASS]", "\t[FAIL]", "# of passed: 1"]


LOG = ["[    1.000001] ", "<6>", "\x1b[1m", "\r", "\0", "é", "\t"]


PIECES = st.sampled_from([*ANY_RESULTS, *GROUPS, *ANY_FTRACE, *LOG])


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


# Does a message of the kernel's inside a line make a run have a problem, wherever it cuts, and never a pass?

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
    return {result.name.rpartition("/")[2] for result in run.results if result.outcome is TestOutcome.PASSED}


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
    assert run.results[1].outcome is TestOutcome.FAILED
    assert run.problems == ("a kernel message cuts the line 'not ok 2 - second': it may be damaged",)


def test_a_line_is_put_together_of_several_pieces() -> None:
    text = "1..1\nno[    1.000000] one\n[    1.000001] two\nt ok[    1.000002][   T12] three\n 1 - broken\n"
    run = parse_ktap(text)
    assert [(result.name, result.outcome) for result in run.results] == [("broken", TestOutcome.FAILED)]
    assert set(run.results[0].lines) == {"one", "two", "three"}


def test_equal_lines_that_are_cut_are_no_quotations() -> None:
    run = parse_ktap("ok 1 x[    1.000000] message\n" * 2)
    assert passed(run) == set()


def test_a_skip_whose_reason_is_cut_off_is_no_pass() -> None:
    run = parse_ktap("1..1\nok 1 - it [    1.000000] message\n# SKIP no device\n")
    assert [result.outcome for result in run.results] == [TestOutcome.FAILED]


def test_a_cut_in_a_log_whose_lines_all_have_a_prefix() -> None:
    lines = [f"[    3.{number:06}] {line}" for number, line in enumerate(KUNIT.splitlines())]
    assert parse_ktap("\n".join(lines)).problems == ()
    for at in range(len("[    3.000000] "), len(lines[6]) + 1):
        cut = f"{lines[6][:at]}[    4.000000] message\n{lines[6][at:]}"
        run = parse_ktap("\n".join([*lines[:6], cut, *lines[7:]]))
        assert "a kernel message cuts the line 'not ok 1 a': it may be damaged" in run.problems
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


# Is a run of somebody else's tests a failure where it has to be, and only there?

PASSED, FAILED = TestResult("good", TestOutcome.PASSED), TestResult("bad", TestOutcome.FAILED, "because")


SKIPPED = TestResult("absent", TestOutcome.SKIPPED, "no such device")


def outcomes(run: TestRun, expected: dict[str, str]) -> dict[str, str]:
    return {name: result.outcome for name, result in judged(run, expected).results.items()}


def test_a_failure_fails_the_run() -> None:
    verdict = judged(TestRun((PASSED, FAILED)), {})
    assert verdict.complaints == ("1 of 2 tests failed: bad",)


def test_an_expected_failure_does_not() -> None:
    verdict = judged(TestRun((PASSED, FAILED)), {"bad": "known since 6.1"})
    assert verdict.complaints == ()
    assert verdict.results["bad"] == TestResult("bad", TestOutcome.XFAILED, "known since 6.1")


def test_an_expected_failure_that_passes_fails_the_run() -> None:
    verdict = judged(TestRun((PASSED,)), {"good": "known since 6.1"})
    assert verdict.complaints == ("1 of 1 tests failed: good",)
    reason = "it passes, but is listed as an expected failure: known since 6.1"
    assert verdict.results["good"].reason == reason


def test_a_listed_name_that_no_test_has_fails_the_run() -> None:
    assert judged(TestRun((PASSED,)), {"gone": "why"}).complaints == (
        "no test has the name of these expected failures: gone",
    )


def test_running_no_test_is_a_failure() -> None:
    assert judged(TestRun(()), {}).complaints == ("no test ran: the output has no result",)
    assert judged(TestRun((SKIPPED,)), {}).complaints == ("no test ran: all are skipped; no such device",)
    assert judged(TestRun((SKIPPED, PASSED)), {}).complaints == ()


def test_a_problem_of_the_output_is_a_failure() -> None:
    assert judged(TestRun((PASSED,), ("cut short",)), {}).complaints == ("cut short",)


def test_names_are_told_apart() -> None:
    run = TestRun((PASSED, FAILED, TestResult("bad", TestOutcome.PASSED), FAILED))
    assert outcomes(run, {}) == {"good": "passed", "bad": "failed", "bad#2": "passed", "bad#3": "failed"}


def test_a_complaint_is_short_whatever_a_guest_prints() -> None:
    many = tuple(TestResult(f"bad{number}", TestOutcome.FAILED) for number in range(1000))
    verdict = judged(TestRun(many, tuple(f"problem {number}" for number in range(1000))), {})
    assert len(verdict.results) == 1000
    assert verdict.complaints[0].endswith("bad18, bad19 and 980 more")
    assert verdict.complaints[-2:] == ("problem 19", "and 980 more problems")
    assert len(verdict.complaints) == 22
