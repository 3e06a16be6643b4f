# SPDX-License-Identifier: GPL-2.0-only
"""A session's state for hooks and fixtures, and the guests of marks with lists. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.guest.debugger import DebuggerStub
    from orchestrator.library.guests import GuestOptions
    from orchestrator.library.tested_guest import TestedGuest


SKIPPED = "boots a guest in QEMU; pytest --qemu runs it"

SETTINGS: Mapping[str, str] = {"kernel": "kernel", "cpu": "CPU model", "image": "image", "timing": "timing"}
"""Settings for all guests on the command line and in the configuration file, with descriptions."""

COVERAGE = "qemu-cover"
"""The name of the plugin that is registered with ``--qemu-cover``."""

OPTIONS: pytest.StashKey[GuestOptions] = pytest.StashKey()
MARKS = pytest.StashKey[list[pytest.Mark]]()
"""The marks that the options are of."""
WRONG = pytest.StashKey[str]()


@dataclass
class Attempt:
    """State of a running test. A rerun, as by pytest-rerunfailures, starts with a new one.

    ``results`` are those of third-party tests, ``properties`` belong to the test's own report.
    """

    guests: list[TestedGuest] = field(default_factory=list)
    debuggers: list[DebuggerStub] = field(default_factory=list)
    log: Path | None = None
    has_failed: bool = False
    results: list[dict[str, Any]] = field(default_factory=list)
    properties: list[tuple[str, str]] = field(default_factory=list)


ATTEMPT = pytest.StashKey[Attempt]()


def attempt(item: pytest.Item) -> Attempt:
    """The state of the running test."""
    return item.stash.setdefault(ATTEMPT, Attempt())


def needs_guests(item: pytest.Item) -> bool:
    """Whether a test takes a guest fixture, or is marked for guests."""
    fixtures = getattr(item, "fixturenames", ())
    return CHOICE in fixtures or any(item.iter_markers("guest")) or any(item.iter_markers("qemu"))


def settings_of(config: pytest.Config) -> Mapping[str, str]:
    """Mark arguments that the session sets: by option, else in the configuration file."""
    settings = {name: config.getoption(f"qemu_{name}") or config.getini(f"qemu_{name}") for name in SETTINGS}
    if config.getoption("qemu_cover"):  # KVM counts nothing
        settings["timing"] = settings["timing"] or "tcg"
    return {name: value for name, value in settings.items() if value}


def settings_given(config: pytest.Config) -> list[str]:
    """The ``pytest`` options that set mark arguments, as given."""
    given = {name: config.getoption(f"qemu_{name}") for name in SETTINGS}
    return [f"--qemu-{name}={value}" for name, value in given.items() if value]


def read_item(item: pytest.Item) -> str | None:
    """Store the options of an item's guest; returns what is wrong with its marks, if anything."""
    from orchestrator.errors import UsageError
    from orchestrator.pytest_plugin.guest_pool import check_no_arguments, read_expected_reports, read_marks

    mark = "guest"
    item.stash[MARKS] = list(item.iter_markers())
    try:
        marks = list(item.iter_markers(mark))
        options = read_marks(settings_of(item.config), marks, chosen_by(item))
        mark = "allow_oops"
        expected = read_expected_reports(list(item.iter_markers(mark)))
        mark = "qemu"
        check_no_arguments(list(item.iter_markers(mark)))
    except UsageError as error:
        return f"{item.nodeid}: mark {mark}: {error}"
    item.stash[OPTIONS] = replace(options, allow_oops=(*options.allow_oops, *expected))
    return None


def options_of(request: pytest.FixtureRequest) -> GuestOptions:
    """The options of a test's guest. Skips the test without ``--qemu``, and fails one whose marks are wrong.

    A test that asks for a fixture while it runs was not known to need a guest, and a fixture may have added a mark.
    """
    item: pytest.Item = request.node
    if not request.config.getoption("--qemu"):
        pytest.skip(SKIPPED)
    if item.stash.get(MARKS, None) != list(item.iter_markers()):
        problem = read_item(item)
        if problem is not None:
            pytest.fail(problem, pytrace=False)
    return item.stash[OPTIONS]


@contextlib.contextmanager
def sentences(config: pytest.Config) -> Iterator[None]:
    """Report expected failures without a traceback, except with ``--full-trace``."""
    from orchestrator.errors import LabError

    try:
        yield
    except LabError as error:
        if config.getoption("fulltrace"):
            raise
        failed = pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False)
        raise failed from None


CHOICE = "_guest_choice"
"""The fixture that all guest fixtures use, and that lists parametrise."""

NO_CHOICES = ("data", "allow_oops")
"""Arguments whose value is itself a list."""


def merged(marks: Iterable[pytest.Mark]) -> dict[str, Any]:
    """The arguments of a test's marks, given nearest first; the nearest wins."""
    arguments: dict[str, Any] = {}
    for mark in reversed(list(marks)):
        arguments.update(mark.kwargs)
    return arguments


def parametrize_guests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each combination of the values in lists."""
    lists = _lists(merged(metafunc.definition.iter_markers("guest")))
    if lists:
        choices = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
        metafunc.parametrize(
            CHOICE, choices, indirect=True, ids=["-".join(map(_label, c, c.values())) for c in choices]
        )


def chosen_by(item: pytest.Item) -> Mapping[str, Any]:
    """The values that an item's parameters choose from its mark's lists."""
    callspec = getattr(item, "callspec", None)
    chosen: Mapping[str, Any] = {} if callspec is None else callspec.params.get(CHOICE, {})
    return chosen


def choose(arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with one value for each list; a mark on the parameter set itself may have replaced a list."""
    return {**arguments, **{name: chosen[name] for name in _lists(arguments) if name in chosen}}


def unchosen(arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    """The arguments whose lists pytest has made no tests of."""
    return [name for name in _lists(arguments) if name not in chosen]


def _lists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    choosable = {name: value for name, value in arguments.items() if name not in NO_CHOICES}
    return {name: value for name, value in choosable.items() if isinstance(value, list | tuple) and value}


def _label(name: str, value: object) -> str:
    """A value in a test's id: its text, a path's last part, or a number with its unit."""
    text = str(value)
    return f"{name}{text}" if isinstance(value, int) else PurePath(text).name or text


# The report of a failed test: its own frames, the last steps, and the console meanwhile.

_STEPS = 20
_CONSOLE_LINES = 40


def failure_sections(state: Attempt) -> list[tuple[str, str]]:
    """Titles and texts for the report of an attempt at a test."""
    sections = []
    if state.log is not None:
        steps = state.log.read_text(encoding="utf-8").splitlines()[-_STEPS:]
        sections.append((f"Last steps of {state.log}", "\n".join(steps)))
    for guest in state.guests:
        lines = guest.printed()[-_CONSOLE_LINES:]
        title = f"Console during the test, the end of {guest.console.path}"
        sections.append((title, "\n".join(lines or ["(nothing)"])))
    return sections


_OURS = ("orchestrator.", "contextlib")


def hide_our_frames() -> None:
    """Hide the lab's frames from the tracebacks of expected failures and their causes.

    Other errors keep them, as they may be bugs of the lab.
    """
    from orchestrator.errors import LabError

    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS):
            vars(module)["__tracebackhide__"] = lambda info: isinstance(info.value, LabError)
