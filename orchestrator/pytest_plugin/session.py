# SPDX-License-Identifier: GPL-2.0-only
"""A session's state for hooks and fixtures. Imports nothing heavy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.pytest_plugin.mark_choices import CHOICE, chosen_by

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.experiment.guest_spec import GuestSpec
    from orchestrator.guest.debugger import DebuggerStub
    from orchestrator.library.tested_guest import TestedGuest


SKIPPED = "boots a guest in QEMU; pytest --qemu runs it"

SETTINGS: Mapping[str, str] = {"kernel": "kernel", "cpu": "CPU model", "image": "image", "timing": "timing"}
"""Settings for all guests on the command line and in the configuration file, with descriptions."""

COVERAGE = "qemu-cover"
"""The name of the plugin that is registered with ``--qemu-cover``."""

SPEC: pytest.StashKey[GuestSpec] = pytest.StashKey()
MARKS = pytest.StashKey[list[pytest.Mark]]()
"""The marks that the guest was read from."""
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
    """Store what an item's marks say of its guest; returns what is wrong with its marks, if anything."""
    from orchestrator.errors import UsageError
    from orchestrator.pytest_plugin.marks import check_no_arguments, read_expected_reports, read_marks

    mark = "guest"
    item.stash[MARKS] = list(item.iter_markers())
    try:
        marks = list(item.iter_markers(mark))
        spec = read_marks(settings_of(item.config), marks, chosen_by(item))
        mark = "allow_oops"
        expected = read_expected_reports(list(item.iter_markers(mark)))
        mark = "qemu"
        check_no_arguments(list(item.iter_markers(mark)))
    except UsageError as error:
        return f"{item.nodeid}: mark {mark}: {error}"
    item.stash[SPEC] = spec.model_copy(update={"allow_oops": (*spec.allow_oops, *expected)})
    return None


def guest_spec_of(request: pytest.FixtureRequest) -> GuestSpec:
    """The guest that a test asks for. Skips the test without ``--qemu``, and fails one whose marks are wrong.

    A test that asks for a fixture while it runs was not known to need a guest, and a fixture may have added a mark.
    """
    item: pytest.Item = request.node
    if not request.config.getoption("--qemu"):
        pytest.skip(SKIPPED)
    if item.stash.get(MARKS, None) != list(item.iter_markers()):
        problem = read_item(item)
        if problem is not None:
            pytest.fail(problem, pytrace=False)
    return item.stash[SPEC]


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
