# SPDX-License-Identifier: GPL-2.0-only
"""Is what a test starts and takes counted, in its own process and in those that it starts, and is it written down?"""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest
from suite_costs import recorded_costs

pytest_plugins = ["pytester"]


TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Its processes load one plugin: to load hypothesis takes longer than all the rest."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.plugins.append("xdist.plugin")
    return pytester


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("setpriv --pdeathsig TERM sh with-parent.sh 7 prlimit qemu-system-x86_64 -m 64 -kernel k", "boot"),
        ("sh spawned.sh /usr/bin/qemu-system-x86_64 -incoming defer -kernel k", "restore"),
        ("sh die-with-parent.sh qemu-system-x86_64 --version", "other"),
        ("/some/venv/bin/python3.11 -c pass", "python"),
        ("sh die-with-parent.sh make -C /linux modules", "make"),
        ("gcc -static x.c", "compiler"),
        ("ls", "other"),
    ],
)
def test_the_kinds_of_programs(words: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORCHESTRATOR_TESTS_STARTED", raising=False)  # it would count everything twice from now on
    names = runpy.run_path(str(TESTS / "started_programs" / "sitecustomize.py"))
    assert names["kind_of"](words.split()) == kind


@pytest.mark.parametrize(("workers", "worth_a_row", "rows"), [("0", 0.0, 14), ("1", 3600.0, 0)])
def test_each_files_programs_are_counted(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str, worth_a_row: float, rows: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.delenv("ORCHESTRATOR_TESTS_STARTED", raising=False)
    monkeypatch.setenv("CI", "true")
    pytester.makeconftest(
        f"""
        import pathlib
        import suite_costs
        from suite_costs import measure_costs as pytest_configure

        suite_costs._WORTH_A_ROW = {worth_a_row}

        def pytest_addoption(parser):
            parser.addoption("--costs", type=pathlib.Path)
        """
    )
    python = "import subprocess, sys\ndef test_it():\n    subprocess.run([sys.executable, '-c', "
    for number in range(12):
        pytester.makepyfile(**{f"test_{number}": "def test_nothing(): pass"})
    pytester.makepyfile(
        test_guests=f'{python}\'import subprocess; subprocess.run(["env", "qemu-system-x", "-kernel", "x"])\'])',
        test_python=f"{python}'pass'])",
    )
    result = pytester.runpytest_subprocess("-n", workers, "--costs", "written.yaml")
    result.assert_outcomes(passed=14)
    shown = {line.split()[-1]: line.split() for line in result.outlines if line.endswith(("test_guests.py", " all"))}
    assert [shown[name][2:5] for name in ("test_guests.py", "all")] == [["1", "0", "1"], ["1", "0", "2"]]
    assert sum(line.endswith(".py") for line in result.outlines) == 14
    written = recorded_costs(pytester.path / "written.yaml")
    assert (written["guests"], len(written["files"])) == (1, rows)
    seconds = list(written["files"].values())
    assert seconds == sorted(seconds, reverse=True)


# Does a person see each failure when it happens, with what repeats it, and each reason for skipped tests once?


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder of tests that is reported as the lab's own."""
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.setenv("ORCHESTRATOR_TESTS_CALLED_AS", "./lab")
    pytester.makeconftest(
        """
        from suite_report import report_as_it_comes, write_skip_summary

        def pytest_configure(config):
            config.addinivalue_line("markers", "nightly: long")
            report_as_it_comes(config)

        def pytest_terminal_summary(terminalreporter):
            write_skip_summary(terminalreporter)
        """
    )
    return pytester


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_failure_is_shown_when_it_happens_with_the_command_that_repeats_it(
    suite: pytest.Pytester, workers: str
) -> None:
    suite.makepyfile(
        test_x="""
        import pytest

        @pytest.mark.parametrize("word", ["a b"])
        def test_wrong(word):
            print("".join(["what it ", "has printed"]))
            assert word == "c"
        @pytest.mark.nightly
        def test_long(missing): pass
        def test_right(): pass
        """
    )
    result = suite.runpytest_subprocess("-v", "-rfE", "-n", workers)
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "_* test_x.py::test_wrong[[]a b] _*",
            "E  *assert 'a b' == 'c'",
            "what it has printed",
            "again: ./lab test 'test_x.py::test_wrong[[]a b]'",
            "_* test_x.py::test_long (setup) _*",
            "*fixture 'missing' not found",
            "again: ./lab test --nightly test_x.py::test_long",
            "*test_right*PASSED*" if workers == "0" else "*PASSED*test_right*",
            "*short test summary info*",
        ]
    )
    assert result.stdout.str().count("what it has printed") == 1


def test_a_file_that_cannot_be_read_is_shown_with_its_command(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_x="import nothing_of_this_name")
    result = suite.runpytest_subprocess("-n", "1")
    result.stdout.fnmatch_lines(["E  *No module named 'nothing_of_this_name'", "again: ./lab test test_x.py"])


def test_each_reason_has_a_line_and_failures_come_last(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        """
        import pytest

        @pytest.mark.skip(reason="no kernel")
        def test_one(): pass
        @pytest.mark.parametrize("number", range(10))
        def test_ten(number): pytest.skip("no image")
        @pytest.mark.skip(reason="no kernel")
        class TestOthers:
            def test_two(self): pass
        def test_wrong(): assert False
        """
    )
    result = suite.runpytest_subprocess("-rf")
    result.assert_outcomes(skipped=12, failed=1)
    result.stdout.fnmatch_lines(
        [
            "* skipped tests, and why *",
            "   10 no image",
            "    2 no kernel",
            "* short test summary info *",
            "FAILED *::test_wrong *",
        ],
        consecutive=True,
    )
