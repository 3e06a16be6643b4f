# SPDX-License-Identifier: GPL-2.0-only
"""What holds for all tests: their environment, the programs they find, and which of them run every night only."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from neutral_environment import WRITE_GOLDEN, neutralise_environment
from restricted_path import restrict_path
from suite_costs import dearest_first, measure_costs
from suite_report import report_as_it_comes, write_skip_summary
from suite_signals import obey_signals

_YOUNG_OBJECTS = 20_000
"""New objects between two looks for garbage, which at Python's 700 take a twentieth of the tests' own time."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--nightly``, ``--write-golden`` and ``--costs``."""
    parser.addoption("--nightly", action="store_true", help="run the tests that take too long for every day, too")
    parser.addoption("--costs", type=Path, metavar="FILE", help="write what each file of tests costs")
    parser.addoption("--write-golden", action="store_true", help="write golden files instead of comparing with them")


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before test modules are imported, and declare the mark of the long tests."""
    gc.set_threshold(_YOUNG_OBJECTS)
    report_as_it_comes(config)
    neutralise_environment(config)
    obey_signals(config)
    restrict_path(config)
    measure_costs(config)
    if config.getoption("write_golden"):
        os.environ[WRITE_GOLDEN] = "1"
    config.addinivalue_line("markers", "nightly(reason): takes too long for every day; --nightly runs it")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two workers more than there are processors: many tests wait, for a time limit or a guest that stands still."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let no collector of garbage go through the thousands of tests again and again: they stay until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # pytest then puts the failed ones before all others
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the dearest files first, and skip the long tests, each with its reason, without ``--nightly``."""
    dearest_first(items)
    if config.getoption("--nightly"):
        return
    for item in items:
        mark = item.get_closest_marker("nightly")
        if mark is not None:
            item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]}; --nightly runs it"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were skipped."""
    write_skip_summary(terminalreporter)
