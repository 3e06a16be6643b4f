# SPDX-License-Identifier: GPL-2.0-only
"""Does a test that is run again begin anew: with no result, guest, budget or property of the attempt before?"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from xml.etree import ElementTree

import pytest
import yaml

from orchestrator.pytest_plugin.result_reports import _ATTRIBUTE, _ReportsOfResults

pytest_plugins = ["pytester"]

TESTS = '''
    from pathlib import Path
    from types import SimpleNamespace

    import pytest

    from orchestrator.artifacts.cache import Cache
    from orchestrator.errors import GuestExit
    from orchestrator.ktap.ktap import parse_ktap
    from orchestrator.pytest_plugin import fixtures
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
        fixtures._keep(request.node, tested, print)


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


@pytest.mark.parametrize("workers", ["0", "2"])
def test_nothing_reaches_the_next_attempt(pytester: pytest.Pytester, workers: str) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_subprocess(
        "--qemu", "--qemu-update-budgets", "--reruns=1", "-n", workers, "-v", "--junitxml=junit.xml"
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
        [one.get("value", "") for one in case.iter("property") if one.get("name") == "qemu_arguments"]
        for case in cases["test_guest"]
    ]
    assert [[path.rpartition("/")[2] for path in paths] for paths in arguments] == [
        ["first.arguments"],
        ["second.arguments"],
    ]

    (file,) = pytester.path.glob("*.budgets.yaml")
    assert yaml.safe_load(file.read_text()) == {"test_budget": {"both": {"k 6.1, pentium4": 7}}}


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
