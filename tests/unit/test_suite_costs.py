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


@pytest.mark.parametrize("workers", ["0", "2"])
def test_each_files_programs_are_counted(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: str
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)
    monkeypatch.delenv("ORCHESTRATOR_TESTS_STARTED", raising=False)
    monkeypatch.setenv("CI", "true")
    pytester.makeconftest(
        """
        import pathlib
        from suite_costs import measure_costs as pytest_configure

        def pytest_addoption(parser):
            parser.addoption("--costs", type=pathlib.Path)
        """
    )
    python = "import subprocess, sys\ndef test_it():\n    subprocess.run([sys.executable, '-c', "
    for number in range(12):
        pytester.makepyfile(**{f"test_{number}": "def test_nothing(): pass"})
    pytester.makepyfile(
        test_guests=f'{python}\'import subprocess; subprocess.run(["env", "qemu-system-x", "-kernel", "x"])\'])',
        test_python=f"{python}'while __import__(\"time\").process_time() < 2.5: pass'])",
    )
    result = pytester.runpytest_subprocess("-n", workers, "--costs", "written.yaml")
    result.assert_outcomes(passed=14)
    shown = {line.split()[-1]: line.split() for line in result.outlines if line.endswith(("test_guests.py", " all"))}
    assert [shown[name][2:5] for name in ("test_guests.py", "all")] == [["1", "0", "1"], ["1", "0", "2"]]
    assert sum(line.endswith(".py") for line in result.outlines) == 14
    written = recorded_costs(pytester.path / "written.yaml")
    assert (written["guests"], list(written["files"])) == (1, ["test_python.py"])
