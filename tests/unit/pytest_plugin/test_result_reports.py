# SPDX-License-Identifier: GPL-2.0-only
"""Has each of somebody else's tests a result of pytest's: its id, its outcome and its lines, in every report?"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
import yaml
from junitparser import JUnitXml, Properties

from orchestrator.guest.guest import Guest
from orchestrator.pytest_plugin.ktap_tests import KernelTests
from orchestrator.pytest_plugin.result_reports import _ATTRIBUTE, _Comment, _ReportsOfResults
from orchestrator.report.markdown import escaped

pytest_plugins = ["pytester"]

RUN = """
    import pytest
    from orchestrator.ktap.ktap import parse_ktap

    TEXT = '''1..1
        # Subtest: suite
        1..4
        ok 1 good
        # it was expected to be 5, and is 6
        not ok 2 bad
        ok 3 absent # SKIP no such device
        not ok 4 known # TODO since 6.1
    not ok 1 suite
    '''
"""


@pytest.fixture
def session(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(
        f"""{RUN}
    @pytest.mark.parametrize("times", [1, 2])
    def test_theirs(ktap, times):
        ktap.report(parse_ktap(TEXT * times))

    def test_expected(ktap):
        ktap.report(parse_ktap(TEXT), expected="expected.yaml")

    def test_ours():
        pass
    """
    )
    pytester.path.joinpath("expected.yaml").write_text("suite/bad: counts differ on this machine\n")
    return pytester


OUTCOMES = {"passed": 6, "failed": 5, "skipped": 4, "xfailed": 5}
"""Of four results, four times, with one expected failure of another kind; and of the four tests that made them."""

LINES = [
    "*::test_theirs[[]1] FAILED*",
    "*::test_theirs[[]1][[]suite/good] PASSED*",
    "*::test_theirs[[]1][[]suite/bad] FAILED*",
    "*::test_theirs[[]1][[]suite/absent] SKIPPED*",
    "*::test_theirs[[]1][[]suite/known] XFAIL*",
    "*::test_theirs[[]2][[]suite/bad#2] FAILED*",
    "*::test_expected[[]suite/bad] XFAIL*",
]


def test_each_is_shown_with_its_outcome_and_its_lines(session: pytest.Pytester) -> None:
    result = session.runpytest_inprocess("-v", "-ra", "-p", "no:xdist")
    result.assert_outcomes(**OUTCOMES)
    result.stdout.fnmatch_lines(LINES)
    result.stdout.fnmatch_lines(
        [
            "SKIPPED [[]*] test_*.py:*: suite/absent: no such device",
            "XFAIL *::test_theirs[[]1][[]suite/known] - since 6.1",
            "XFAIL *::test_expected[[]suite/bad] - counts differ on this machine",
        ]
    )
    result.stdout.fnmatch_lines(
        [
            "*_ test_theirs[[]1] _*",
            "1 of 4 tests failed: suite/bad",
            "*_ test_theirs[[]1][[]suite/bad] _*",
            "# it was expected to be 5, and is 6",
        ]
    )
    printed = result.stdout.str()
    assert "[100%]" in printed
    assert "Traceback" not in printed
    assert "kernel_tests.py" not in printed
    assert not [line for line in printed.splitlines() if line.endswith("%]") and int(line.split("[")[-1][:-2]) > 100]


def test_workers_of_xdist_send_them_on(session: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    result = session.runpytest_subprocess("-p", "no:hypothesispytest", "-v", "-n", "1")
    result.assert_outcomes(**OUTCOMES)
    assert "test_theirs[2][suite/bad#2] FAILED" in result.stdout.str()


def test_junit_has_a_case_for_each(session: pytest.Pytester) -> None:
    session.runpytest_inprocess("--junitxml=junit.xml")
    cases = {
        case.get("name"): [(part.tag, part.get("message"), part.text) for part in case]
        for case in ElementTree.parse(session.path / "junit.xml").iter("testcase")
    }
    assert len(cases) == sum(OUTCOMES.values())
    assert cases["test_theirs[1][suite/good]"] == []
    ((tag, _, text),) = cases["test_theirs[1][suite/bad]"]
    assert (tag, text) == ("failure", "# it was expected to be 5, and is 6")
    assert cases["test_expected[suite/bad]"][0][:2] == ("skipped", "counts differ on this machine")


def test_the_last_failures_are_those_of_the_tests_that_ran_them(session: pytest.Pytester) -> None:
    session.runpytest_inprocess("-p", "no:xdist")
    again = session.runpytest_inprocess("--lf", "-v", "-p", "no:xdist")
    assert "run-last-failure: rerun previous 2 failures" in again.stdout.str()
    again.assert_outcomes(failed=5, passed=3, skipped=3, xfailed=3)


def test_a_test_that_fails_for_another_reason_keeps_its_results(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        f"""{RUN}
    def test_theirs(ktap):
        ktap.report(parse_ktap("1..1\\nok 1 good\\n"))
        assert 1 == 2
    """
    )
    result = pytester.runpytest_inprocess("-v", "-p", "no:xdist")
    result.assert_outcomes(failed=1, passed=1)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("- suite/bad\n", "expected.yaml:1: expected tests' names with the reasons why they fail"),
        (
            "suite/good: x\nsuite/bad:\n",
            "expected.yaml:2: found no reason why 'suite/bad' fails; expected one, as text",
        ),
        ("suite/bad: x\nsuite/bad: y\n", "expected.yaml:2: *"),
        (None, "expected.yaml: no such file"),
    ],
)
def test_a_wrong_list_is_a_sentence(session: pytest.Pytester, content: str | None, sentence: str) -> None:
    file = session.path / "expected.yaml"
    file.unlink() if content is None else file.write_text(content)
    result = session.runpytest_inprocess("-k", "expected", "-p", "no:xdist")
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines([f"ConfigError: *{sentence}"])
    assert "During handling" not in result.stdout.str()
    assert "Traceback" not in result.stdout.str()
    assert "def read_expected" not in result.stdout.str()


def test_a_wrong_list_is_found_before_anything_runs(tmp_path: Path) -> None:
    class Untouched:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"the guest was asked for {name}")

    guest, ktap = cast("Guest", Untouched()), KernelTests(tmp_path, [])
    runs: list[Callable[[], None]] = [
        lambda: ktap.kunit(guest, expected="expected.yaml"),
        lambda: ktap.program(guest, ["true"], expected="expected.yaml"),
        lambda: ktap.ftracetest(guest, "/data", expected="expected.yaml"),
    ]
    for run in runs:
        with pytest.raises(pytest.fail.Exception, match="no such file"):
            run()


# Does a test that is run again begin anew: with no result, guest, budget or property of the attempt before?

TESTS = '''
    from pathlib import Path
    from types import SimpleNamespace

    import pytest

    from orchestrator.artifacts.cache import Cache
    from orchestrator.errors import GuestExit
    from orchestrator.ktap.ktap import parse_ktap
    from orchestrator.pytest_plugin import fixtures
    from orchestrator.pytest_plugin.guest_pool import GuestPool
    from orchestrator.pytest_plugin.session import attempt


    def is_first(name):
        """Whether this is the first attempt, in whichever process."""
        file = Path(__file__).with_name(f"{name}.attempt")
        was_there = file.exists()
        file.touch()
        return not was_there


    class Guest:
        """What the plugin asks of a guest."""

        machine = SimpleNamespace(cpu=SimpleNamespace(name="pentium4"))
        core_file = None

        def __init__(self, name):
            self.console = SimpleNamespace(path=Path(f"{name}.log"))
            self.command_line = ["qemu", name]
            self.is_alive = True

        def begin_test(self, folder, expected):
            pass

        def printed(self):
            return []

        def check_kernel(self):
            if not self.is_alive:
                raise GuestExit(f"{self.console.path} has ended")


    @pytest.fixture
    def guest(request, workshop, _guest_choice):
        tested = Guest("first" if is_first("guest-of-" + request.node.name) else "second")
        fixtures._begin(request.node, tested)
        yield tested
        GuestPool(workshop, Path()).keep(request.node, tested)


    @pytest.fixture(scope="session")
    def workshop():
        return SimpleNamespace(cache=Cache(Path(__file__).with_name("cache")), say=print)


    @pytest.fixture
    def guest_kernel():
        return SimpleNamespace(spec=SimpleNamespace(name="k"), release="6.1")


    @pytest.fixture
    def fragile():
        yield
        assert not is_first("fragile")


    def test_fails_first(ktap):
        word = "not ok" if is_first("fails") else "ok"
        ktap.report(parse_ktap(f"1..2\\nok 1 steady\\n{word} 2 flaky\\n"))


    def test_whose_end_fails_first(ktap, fragile):
        ktap.report(parse_ktap("1..1\\nok 1 solid\\n"))


    def test_fails_twice(ktap):
        ktap.report(parse_ktap("1..2\\nok 1 steady\\nnot ok 2 broken\\n"))


    def test_with_parts(ktap, subtests):
        with subtests.test("ours"):
            ktap.report(parse_ktap("1..1\\nok 1 one\\n"))
        with subtests.test("other"):
            pass


    def test_guest(request, guest):
        assert attempt(request.node).guests == [guest]
        assert not attempt(request.node).has_failed
        guest.is_alive = not is_first("guest")


    def test_budget(instruction_budget):
        instruction_budget.check("both", 7)
        if is_first("budget"):
            instruction_budget.check("of the first", 5)
            raise ValueError


    def test_budget_of_no_pass(instruction_budget):
        instruction_budget.check("never", 7)
        raise ValueError
'''


@pytest.mark.parametrize(
    "workers", ["0", pytest.param("2", marks=pytest.mark.nightly("attempts on other workers: four seconds"))]
)
def test_nothing_reaches_the_next_attempt(pytester: pytest.Pytester, workers: str) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(
        "-p",
        "no:hypothesispytest",
        "--qemu",
        "--qemu-update-budgets",
        "--reruns=1",
        "-n",
        workers,
        "-v",
        "--junitxml=junit.xml",
    )
    outcomes = result.parseoutcomes()
    assert (outcomes["failed"], outcomes["rerun"]) == (3, 6)  # test_fails_twice, its broken one; test_budget_of_no_pass
    shown = [line for line in result.stdout.lines if "PASSED" in line or "FAILED" in line]
    for name in ("test_fails_first[steady]", "test_fails_first[flaky]", "test_whose_end_fails_first[solid]"):
        assert len([line for line in shown if name in line]) == 1
    for name in ("test_fails_twice[steady]", "test_with_parts[one]"):
        assert len([line for line in shown if name in line]) == 1

    cases: dict[str | None, list[ElementTree.Element]] = {}
    for case in ElementTree.parse(pytester.path / "junit.xml").iter("testcase"):
        cases.setdefault(case.get("name"), []).append(case)
    for name in ("test_fails_first[flaky]", "test_whose_end_fails_first[solid]", "test_with_parts[one]"):
        (case,) = cases[name]
        assert list(case) == []
    assert [part.tag for part in cases["test_fails_twice[broken]"][0]] == ["failure"]
    arguments = [
        [element.get("value", "") for element in case.iter("property") if element.get("name") == "qemu_arguments"]
        for case in cases["test_guest"]
    ]
    assert [[path.rpartition("/")[2] for path in paths] for paths in arguments] == [
        ["first.arguments"],
        ["second.arguments"],
    ]

    (file,) = pytester.path.glob("*.budgets.yaml")
    assert yaml.safe_load(file.read_text()) == {"test_budget": {"both": {"k 6.1, pentium4": 7}}}


BUDGETS = """
    test_budget:
      hard: {"k 6.1, pentium4": 422}
      soft: {"k 6.1, pentium4": 1000 +5%}
      limit: {"k 6.1, pentium4": <=300}
"""
COUNTS = """
    def test_budget(instruction_budget):
        for label, count in {"soft": 1020, "limit": 250.5, "hard": 425}.items():
            instruction_budget.check(label, count)


    def test_without():
        pass
"""


def test_junit_has_the_count_the_budget_and_the_change_of_a_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS.partition("    def test_fails_first")[0] + COUNTS)
    (file,) = pytester.path.glob("*.py")
    file.with_suffix(".budgets.yaml").write_text(textwrap.dedent(BUDGETS))
    files = ["--junitxml=junit.xml", "--qemu-comment=comment.md"]
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "--qemu", "-n", "0", *files)
    result.assert_outcomes(failed=1, passed=1)
    ((case, _),) = JUnitXml.fromfile(str(pytester.path / "junit.xml"))
    found = {one.name: one.value for one in case.iterchildren(Properties).__next__()}
    assert {name: value for name, value in found.items() if name.startswith("instructions")} == {
        "instructions[soft]": "1020",
        "instructions_budget[soft]": "1000 +5%",
        "instructions_before[soft]": "1000",
        "instructions_change[soft]": "+20",
        "instructions[limit]": "250.5",
        "instructions_budget[limit]": "<=300",
        "instructions[hard]": "425",
        "instructions_budget[hard]": "422",
        "instructions_before[hard]": "422",
        "instructions_change[hard]": "+3",
    }
    lines = (pytester.path / "comment.md").read_text().splitlines()
    assert lines[:3] == ["<!-- probe-lab: pytest -->", "", "**❌ 1 test passed, 1 failed.**"]
    test = f"{file.name}::test_budget"
    assert [line for line in lines if line.startswith(f"| {escaped(test)}")] == [
        f"| {escaped(test)}: soft | 1000 | 1020 | +20 | 1000 +5% |",
        f"| {escaped(test)}: limit |  | 250.5 |  | &lt;=300 |",
        f"| {escaped(test)}: hard | 422 | 425 | +3 | 422 |",
    ]
    failure = lines[lines.index(f"<details><summary>{test}</summary>") :]
    assert any(
        "hard takes 425 instructions, 3 more than its budget, 422, on k 6.1, pentium4" in line for line in failure
    )


@pytest.mark.parametrize(
    ("phases", "shown"),
    [
        ([("setup", "passed"), ("call", "passed"), ("teardown", "passed")], 1),
        ([("call", "failed"), ("teardown", "failed")], 1),
        ([("call", "rerun"), ("teardown", "passed")], 0),
        ([("call", "passed"), ("teardown", "rerun")], 0),
        ([("call", "rerun"), ("teardown", "passed"), ("call", "passed"), ("teardown", "passed")], 1),
        ([("call", "passed"), ("call", "passed"), ("teardown", "passed")], 1),  # of a subtest, and of all of it
        ([("call", "passed"), ("???", "failed")], 1),  # pytest-xdist: the worker has crashed
        ([("call", "passed"), ("???", "rerun")], 0),
        ([("call", "passed")], 1),  # interrupted
        ([("call", "rerun")], 0),
    ],
)
def test_results_are_those_of_the_last_attempt(phases: list[tuple[str, str]], shown: int) -> None:
    told: list[pytest.TestReport] = []
    config = SimpleNamespace(
        pluginmanager=SimpleNamespace(get_plugin=lambda name: None),
        hook=SimpleNamespace(pytest_runtest_logreport=lambda report: told.append(report)),
    )
    reports = _ReportsOfResults(cast("pytest.Config", config))
    for when, outcome in phases:
        report = pytest.TestReport("a.py::test", ("a.py", 1, "test"), {}, cast("Any", outcome), None, cast("Any", when))
        if when == "call":
            results = [{"name": "x", "outcome": "passed", "reason": "", "lines": []}]
            setattr(report, _ATTRIBUTE, results)
        reports.pytest_runtest_logreport(report)
    reports.pytest_sessionfinish()
    assert [report.nodeid for report in told] == ["a.py::test[x]"] * shown


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        (pytest.ExitCode.OK, "✅ 0 tests passed, 0 failed."),
        (pytest.ExitCode.INTERRUPTED, "❌ 0 tests passed, 0 failed; the exit status is 2."),  # a file is wrong
        (pytest.ExitCode.NO_TESTS_COLLECTED, "❌ 0 tests passed, 0 failed; the exit status is 5."),
    ],
)
def test_a_session_that_ran_no_test_is_no_success(tmp_path: Path, status: int, verdict: str) -> None:
    comment = tmp_path / "comment.md"
    _Comment(comment).pytest_sessionfinish(status)
    assert comment.read_text().splitlines()[2] == f"**{verdict}**"
