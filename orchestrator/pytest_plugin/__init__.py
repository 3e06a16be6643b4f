# SPDX-License-Identifier: GPL-2.0-only
"""``pytest --qemu``: tests in real guests, whose machines the tests' marks describe.

A test that takes one of the fixtures of ``fixtures`` is a QEMU test; ``@pytest.mark.guest(kernel=..., cpu=...)`` on it,
its class or its module describes the machine. ``@pytest.mark.qemu`` marks a test that starts guests in another way.
Without ``--qemu`` both are skipped.

Every pytest of an environment imports this file and ``fixtures``, so they import nothing heavy.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

from orchestrator.pytest_plugin.failed_tests import failure_sections, hide_our_frames
from orchestrator.pytest_plugin.fixtures import *  # noqa: F403 - pytest finds fixtures in the plugin's own names
from orchestrator.pytest_plugin.mark_choices import CHOICE, parametrize_guests
from orchestrator.pytest_plugin.session import (
    ATTEMPT,
    COVERAGE,
    SETTINGS,
    SKIPPED,
    WRONG,
    Attempt,
    attempt,
    needs_guests,
    read_item,
    sentences,
)

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

pytest_plugins = ["orchestrator.pytest_plugin.result_reports"]

_MARK = (
    "guest(**arguments): the machine of the test's guest; a nearer mark's arguments override a farther one's, and a "
    "list of values makes a test for each (not of data, allow_oops)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--qemu...`` and the settings ``qemu_...``."""
    group = parser.getgroup("orchestrator", "tests in QEMU guests")
    group.addoption("--qemu", action="store_true", help="run the tests that boot QEMU guests")
    group.addoption("--qemu-list", action="store_true", help="show the guests that the tests would get, and run none")
    group.addoption(
        "--qemu-update-budgets", action="store_true", help="write what was counted as the budget, instead of comparing"
    )
    group.addoption(
        "--qemu-interact-on-failure", action="store_true", help="a prompt in the guests of a test that has failed"
    )
    group.addoption(
        "--qemu-keep", action="store_true", help="save the state and a vmcore of each guest of a test that has failed"
    )
    group.addoption("--qemu-gdb", action="store_true", help="stop each test's guest, and wait for gdb to attach")
    group.addoption("--qemu-comment", metavar="FILE", help="write counts and failures as a comment of a pull request")
    group.addoption("--qemu-cover", metavar="FILE", help="write the lines that guests executed, as lcov's tracefile")
    text = "of this module, or this function of the kernel's, alone; may be repeated"
    group.addoption("--qemu-cover-of", metavar="NAME", action="append", default=[], help=f"--qemu-cover {text}")
    for name, what in SETTINGS.items():
        text = f"{what} of guests whose mark names none"
        group.addoption(f"--qemu-{name}", metavar=name.upper(), help=text)
        parser.addini(f"qemu_{name}", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks."""
    config.addinivalue_line("markers", _mark_with_arguments() if config.getoption("markers") else _MARK)
    config.addinivalue_line(
        "markers",
        "allow_oops(*regexes): what the kernel of the test's guest may report on its console; any other report of "
        "trouble fails the test.",
    )
    config.addinivalue_line("markers", "qemu: a test that starts QEMU by itself, without a fixture")
    if config.getoption("qemu_cover_of") and not config.getoption("qemu_cover"):
        raise pytest.UsageError("--qemu-cover-of needs --qemu-cover FILE")
    if config.getoption("qemu_cover") and not config.getoption("qemu_list") and not config.option.collectonly:
        from orchestrator.pytest_plugin.coverage import Coverage

        config.pluginmanager.register(Coverage(config), COVERAGE)


def _mark_with_arguments() -> str:
    from orchestrator.pytest_plugin.marks import described_arguments  # for ``pytest --markers`` only: it is heavy

    return f"{_MARK} Its arguments: {described_arguments()}"


def _is_registered(config: pytest.Config, key: str) -> bool:
    """Whether this plugin, a plugin of others or a conftest has registered a setting, whatever its value."""
    try:
        config.getini(key)
    except ValueError as error:
        return not isinstance(error.__cause__, KeyError)  # else the value is none of the setting's type
    except (TypeError, pytest.UsageError):
        return True
    return True


def _check_settings(config: pytest.Config) -> None:
    """Refuse a misspelt setting: pytest warns of it at the end, and the guests would be others than asked for."""
    # Without a successor that lists the keys, Config.inicfg is deprecated since pytest 9.
    written = getattr(config, "_inicfg", None)
    keys = config.inicfg if written is None else written
    wrong = [key.removeprefix("qemu_") for key in keys if key.startswith("qemu_") and not _is_registered(config, key)]
    if wrong:
        from orchestrator.catalog.data import unknown

        where = "-o" if config.inipath is None else config.inipath
        raise pytest.UsageError(*(f"{where}: {unknown('setting qemu_...', name, SETTINGS)}" for name in wrong))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Check the settings. Collect in this process for ``--qemu-list``: pytest-xdist's controller knows no tests."""
    _check_settings(config)
    if config.getoption("qemu_list") and hasattr(config.option, "numprocesses"):
        config.option.numprocesses, config.option.dist, config.option.tx = 0, "no", []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each guest that a mark with lists describes."""
    if CHOICE in metafunc.fixturenames:
        parametrize_guests(metafunc)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip QEMU tests without ``--qemu``; with it, refuse to start if any mark is wrong.

    Last, since a project's conftest may add marks, and tests that are deselected need no right ones.
    """
    qemu = [item for item in items if needs_guests(item)]
    if not (config.getoption("--qemu") or config.getoption("qemu_list")):
        for item in qemu:
            item.add_marker(pytest.mark.skip(reason=SKIPPED))
        return
    wrong = {item: problem for item in qemu if (problem := read_item(item)) is not None}
    if not wrong:
        return
    if not hasattr(config, "workerinput"):
        raise pytest.UsageError(*wrong.values())
    # An error in a pytest-xdist worker ends the controller with an internal error, and the text is lost: the worker
    # runs only the wrong tests, each of which fails with its message.
    for item, problem in wrong.items():
        item.stash[WRONG] = problem
    items[:] = wrong


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With ``--qemu-list``, show the guests instead of running tests."""
    if not session.config.getoption("qemu_list") or session.testsfailed:
        return None
    from orchestrator.pytest_plugin.guest_list import guest_lines

    terminal: TerminalReporter | None = session.config.pluginmanager.getplugin("terminalreporter")
    if terminal is not None:
        for line in guest_lines(session.items):
            terminal.write_line(line)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin an attempt at a test. In a pytest-xdist worker a test with a wrong mark fails."""
    item.stash[ATTEMPT] = Attempt()
    if WRONG in item.stash:
        pytest.fail(item.stash[WRONG], pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a passed test if its guest's kernel has reported trouble or become tainted."""
    result = yield
    for guest in attempt(item).guests:
        with sentences(item.config):
            guest.check_kernel()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add properties to a report, of a test or a subtest, and, if it failed, the last steps and the guests' console."""
    state = attempt(item)
    if state.guests:
        hide_our_frames()
    report = yield
    report.user_properties += state.properties
    if report.failed and (state.log is not None or state.guests):
        state.has_failed = True
        report.sections += failure_sections(state)
    return report


def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """With ``--qemu-interact-on-failure``, give the user a prompt in the guests of a failed test."""
    if isinstance(node, pytest.Item) and node.config.getoption("qemu_interact_on_failure"):
        for guest in attempt(node).guests:
            guest.interact()
