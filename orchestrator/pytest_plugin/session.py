# SPDX-License-Identifier: GPL-2.0-only
"""What hooks and fixtures know of a session, and the guests that a mark with lists describes. Imports nothing heavy."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.pytest_plugin.guest_pool import GuestOptions
    from orchestrator.pytest_plugin.tested_guest import TestedGuest


SKIPPED = "boots a guest in QEMU; pytest --qemu runs it"

SETTINGS: Mapping[str, str] = {"kernel": "kernel", "cpu": "CPU model", "image": "image", "timing": "timing"}
"""What the command line and the configuration file say for all guests, and what that is."""

OPTIONS: pytest.StashKey[GuestOptions] = pytest.StashKey()
WRONG = pytest.StashKey[str]()


@dataclass
class Attempt:
    """All that is kept on a test while it runs. One that is run again, as by pytest-rerunfailures, begins with another.

    ``results`` are those of somebody else's tests, ``properties`` those of the test's own report.
    """

    guests: list[TestedGuest] = field(default_factory=list)
    log: Path | None = None
    has_failed: bool = False
    results: list[dict[str, Any]] = field(default_factory=list)
    properties: list[tuple[str, str]] = field(default_factory=list)


_ATTEMPT = pytest.StashKey[Attempt]()


def begin_attempt(item: pytest.Item) -> None:
    """Forget what an attempt before has left on the test."""
    item.stash[_ATTEMPT] = Attempt()


def attempt(item: pytest.Item) -> Attempt:
    """What is kept on a test while it runs."""
    return item.stash.setdefault(_ATTEMPT, Attempt())


def runs_guests(config: pytest.Config) -> bool:
    """Whether QEMU tests are run, or looked at as if they were."""
    return bool(config.getoption("--qemu") or config.getoption("qemu_list"))


def needs_guests(item: pytest.Item) -> bool:
    """Whether a test takes a fixture of guests, or is marked for them."""
    fixtures = getattr(item, "fixturenames", ())
    return CHOICE in fixtures or any(item.iter_markers("guest")) or any(item.iter_markers("qemu"))


def settings_of(config: pytest.Config) -> Mapping[str, str]:
    """The arguments of marks that the session sets: by option, else in the configuration file."""
    found = {name: config.getoption(f"qemu_{name}") or config.getini(f"qemu_{name}") for name in SETTINGS}
    return {name: value for name, value in found.items() if value}


def settings_given(config: pytest.Config) -> list[str]:
    """The options for ``pytest`` that set arguments of marks, as they were given."""
    given = {name: config.getoption(f"qemu_{name}") for name in SETTINGS}
    return [f"--qemu-{name}={value}" for name, value in given.items() if value]


def options_of(request: pytest.FixtureRequest) -> GuestOptions:
    """The options of a test's guest. Skips the test without ``--qemu``."""
    item: pytest.Item = request.node
    if not request.config.getoption("--qemu"):
        pytest.skip(SKIPPED)
    return item.stash[OPTIONS]


@contextlib.contextmanager
def sentences(config: pytest.Config) -> Iterator[None]:
    """Expected failures as a sentence, not as a traceback, except with ``--full-trace``."""
    from orchestrator.errors import LabError

    try:
        yield
    except LabError as error:
        if config.getoption("fulltrace"):
            raise
        failed = pytest.fail.Exception(f"{type(error).__name__}: {error}", pytrace=False)
        raise failed from None


CHOICE = "_guest_choice"
"""The fixture that all fixtures of guests use, and that lists parametrise."""

NO_CHOICES = ("data", "allow_oops")
"""Arguments whose value is a list by itself."""


def merged(marks: Iterable[pytest.Mark]) -> dict[str, Any]:
    """The arguments of a test's marks, which come with the nearest first: that one wins."""
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
    """What an item's parameters choose of its mark's lists."""
    callspec = getattr(item, "callspec", None)
    chosen: Mapping[str, Any] = {} if callspec is None else callspec.params.get(CHOICE, {})
    return chosen


def choose(arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with one value for each list; a mark of the parameter set itself may have overridden a list."""
    return {**arguments, **{name: chosen[name] for name in _lists(arguments) if name in chosen}}


def _lists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in arguments.items() if name not in NO_CHOICES}
    return {name: value for name, value in found.items() if isinstance(value, list | tuple) and value}


def _label(name: str, value: object) -> str:
    """A value in a test's id: its text, a path by its last part, a number with what it counts."""
    text = str(value)
    return f"{name}{text}" if isinstance(value, int) else PurePath(text).name or text
