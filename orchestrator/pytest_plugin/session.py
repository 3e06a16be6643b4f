# SPDX-License-Identifier: GPL-2.0-only
"""What the hooks and fixtures know of a session and of its tests. Imports nothing heavy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import re
    from pathlib import Path

    from orchestrator.pytest_plugin.guest_options import GuestOptions
    from orchestrator.pytest_plugin.tested_guest import TestedGuest

SKIPPED = "boots a guest in QEMU; pytest --qemu runs it"

SETTINGS: Mapping[str, str] = {"kernel": "kernel", "cpu": "CPU model", "image": "image", "timing": "timing"}
"""What the command line and the configuration file say for all guests, and what that is."""

OPTIONS: pytest.StashKey[GuestOptions] = pytest.StashKey()
EXPECTED: pytest.StashKey[Sequence[re.Pattern[str]]] = pytest.StashKey()
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
