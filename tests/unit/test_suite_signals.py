# SPDX-License-Identifier: GPL-2.0-only
"""Does a signal to the tests end their workers and fixtures in order, with a report of what has run so far?"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = Path(__file__).resolve().parents[1]
PATIENCE = 600.0


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    """Two files, each with a test that passes and one that waits, in a process whose number it writes down."""
    pytester.makeconftest("from suite_signals import obey_signals as pytest_configure")
    waiting = """
        import os, pathlib, subprocess, time
        import pytest

        @pytest.fixture
        def held():
            with subprocess.Popen(["sleep", "600"]) as child:
                pathlib.Path("NAME.pid").write_text(f"{os.getpid()} {child.pid}")
                yield
                child.kill()
            pathlib.Path("NAME.ended").touch()
        def test_right(): pass
        def test_waits(held): time.sleep(600)
        """
    pytester.makepyfile(test_a=waiting.replace("NAME", "a"), test_b=waiting.replace("NAME", "b"))
    return pytester


@contextmanager
def running(suite: pytest.Pytester, *options: str) -> Iterator[subprocess.Popen[str]]:
    """pytest, in a session of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "xdist.plugin", *options],
        cwd=suite.path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # hypothesis is slow
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def held_by(process: subprocess.Popen[str], file: Path) -> list[int]:
    """The process that runs a waiting test, and its child, when both have begun."""
    wait_until(lambda: process.poll() is not None or (file.exists() and len(file.read_text().split()) == 2))
    return [int(number) for number in file.read_text().split()]


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}/exe").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_workers_end_their_tests_and_what_has_run_is_reported(suite: pytest.Pytester, number: signal.Signals) -> None:
    with running(suite, "-n", "2", "--dist", "loadfile") as process:
        held = [pid for name in ("a.pid", "b.pid") for pid in held_by(process, suite.path / name)]
        # A terminal's Ctrl-C is for all of its processes.
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, printed
    assert "2 passed in " in printed
    assert "!! KeyboardInterrupt" in printed
    wait_until(lambda: all(map(is_gone, held)))
    assert {file.name for file in suite.path.glob("*.ended")} == {"a.ended", "b.ended"}


def test_one_process_ends_in_order_too(suite: pytest.Pytester) -> None:
    with running(suite, "-n", "0", "test_a.py") as process:
        held = held_by(process, suite.path / "a.pid")
        process.terminate()
        printed, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, "1 passed in " in printed) == (pytest.ExitCode.INTERRUPTED, True), printed
    assert is_gone(held[1])
    assert (suite.path / "a.ended").exists()


def test_killed_tests_leave_no_worker(suite: pytest.Pytester) -> None:
    with running(suite, "-n", "2", "--dist", "loadfile") as process:
        held = [pid for name in ("a.pid", "b.pid") for pid in held_by(process, suite.path / name)]
        process.kill()
        wait_until(lambda: all(map(is_gone, held)))
    assert {file.name for file in suite.path.glob("*.ended")} == {"a.ended", "b.ended"}
