# SPDX-License-Identifier: GPL-2.0-only
"""Does each wrong mark of a test end pytest, before a guest starts, with the message of ``golden/wrong``?"""

from __future__ import annotations

import shlex

import pytest
import yaml
from golden_messages import check_text
from wrong_inputs import DATA

# Pytester forgets what its runs import: without this each takes seconds.
from orchestrator.pytest_plugin import guest_pool  # noqa: F401

pytest_plugins = ["pytester"]

INPUTS = yaml.safe_load((DATA / "guest-mark.yaml").read_text("utf-8"))
TEST = "import pytest\n\n@pytest.mark.{mark}\ndef test_it(guest):\n    pass\n"


def said(pytester: pytest.Pytester, given: dict[str, str]) -> str:
    """What pytest says of a wrong mark, as a section of a golden file."""
    pytester.makepyfile(test_mine=TEST.format(mark=given["mark"]))
    options = ["--qemu", "--strict-markers", *shlex.split(given.get("options", ""))]
    # With --collect-only a mark that is taken for right makes the test fail, and starts no guest.
    result = pytester.runpytest_inprocess(*options, "--collect-only", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert result.ret == pytest.ExitCode.USAGE_ERROR, given["title"]
    message = result.stderr.str().replace(str(pytester.path), "HERE").strip()
    lines = [f"# {given['title']}", f"    @pytest.mark.{given['mark']}", f"$ pytest {' '.join(options)}", message]
    return "\n".join([*lines, f"status {int(result.ret)}", "", ""])


def test_messages_are_as_in_the_golden_file(pytester: pytest.Pytester) -> None:
    assert len({given["title"] for given in INPUTS}) == len(INPUTS) >= 20
    check_text("guest-mark", "".join(said(pytester, given) for given in INPUTS))


IN_A_TEST_CASE = """\
import unittest
import pytest

@pytest.mark.guest(cpu=["pentium4", "athlon"])
class InCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, shared_guest):
        self.guest = shared_guest
    def test_it(self):
        self.guest.succeed(["true"])
"""


def test_a_list_that_pytest_makes_no_tests_of_is_told(pytester: pytest.Pytester) -> None:
    """As in a unittest.TestCase, whose methods pytest does not parametrise."""
    pytester.makepyfile(test_mine=IN_A_TEST_CASE)
    result = pytester.runpytest_inprocess("--qemu", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stderr.str()
    assert (
        "mark guest: cpu: found ['pentium4', 'athlon']; a list makes a test for each value, and pytest has made" in said
    )
    assert "hint: name one value here, or move the test into a plain class" in said


CONFTEST = """\
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.guest(cpu="pentum4"))
"""


def test_a_mark_that_a_conftest_adds_is_read(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_mine=TEST.format(mark="guest(smp=1)"))
    result = pytester.runpytest_inprocess("--qemu", "--collect-only", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert "mark guest: cpu: found 'pentum4'" in result.stderr.str()


def test_a_wrong_mark_of_a_test_that_is_deselected_is_no_obstacle(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TEST.format(mark="guest(smp=0)") + "\ndef test_other():\n    pass\n")
    result = pytester.runpytest_inprocess("--qemu", "-k", "other", "-p", "no:cacheprovider", "-p", "no:xdist")
    result.assert_outcomes(passed=1, deselected=1)


def test_a_test_without_a_wrong_mark_is_no_part_of_the_message(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TEST.format(mark="guest(smp=0)") + "\ndef test_other(guest):\n    pass\n")
    result = pytester.runpytest_inprocess("--qemu", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert "test_it" in result.stderr.str()
    assert "test_other" not in result.stderr.str()


OPTIONS_OF_A_PROJECT = """\
def pytest_addoption(parser):
    parser.addini("qemu_binary", "of the project")
    parser.addini("qemu_port", "of the project", type="bool")
"""


@pytest.mark.parametrize("options", [[], ["--qemu"]])
def test_a_setting_that_the_project_registers_is_its_own(pytester: pytest.Pytester, options: list[str]) -> None:
    pytester.makeconftest(OPTIONS_OF_A_PROJECT)
    pytester.makeini("[pytest]\nqemu_binary = /usr/bin/qemu-system-arm\nqemu_port = none\n")
    pytester.makepyfile("def test_it(pytestconfig):\n    assert 'arm' in pytestconfig.getini('qemu_binary')\n")
    runs = (*options, "-p", "no:cacheprovider", "-p", "no:xdist")
    assert pytester.runpytest_inprocess(*runs).ret == pytest.ExitCode.OK
    result = pytester.runpytest_inprocess(*runs, "-o", "qemu_binry=x")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "unknown setting qemu_... 'binry'" in result.stderr.str()
    assert "'binary'" not in result.stderr.str()
