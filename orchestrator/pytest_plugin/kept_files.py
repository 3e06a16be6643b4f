# SPDX-License-Identifier: GPL-2.0-only
"""What is kept of a test's guests, in the test's folder and in the JUnit XML, and the command that repeats the test."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import LabError
from orchestrator.program import PROGRAM
from orchestrator.pytest_plugin.session import attempt, settings_given
from orchestrator.pytest_plugin.tested_guest import TestedGuest

_REPRODUCE = "reproduce"
_STATE = ".guest"


def keep(item: pytest.Item, guest: TestedGuest) -> None:
    """Write what the console showed during the test and QEMU's arguments beside the test's ``lab.log``.

    The test's properties name the files: ``qemu_console``, ``qemu_arguments``, ``qemu_log``, and ``qemu_reproduce``,
    which is the command itself.
    """
    kept = attempt(item)
    if kept.log is None:
        return
    folder, name = kept.log.parent, guest.console.path.stem
    console, arguments = folder / f"{name}.console", folder / f"{name}.arguments"
    console.write_text("".join(f"{line}\n" for line in guest.printed()), encoding="utf-8")
    arguments.write_text(shlex.join(guest.command_line) + "\n", encoding="utf-8")
    kept.properties += [("qemu_console", str(console)), ("qemu_arguments", str(arguments))]
    if not (folder / _REPRODUCE).exists():
        command = reproducing_command(item)
        (folder / _REPRODUCE).write_text(command + "\n", encoding="utf-8")
        kept.properties += [("qemu_log", str(kept.log)), ("qemu_reproduce", command)]


def keep_state(item: pytest.Item, guest: TestedGuest, say: Callable[[str], None]) -> None:
    """Save the state of a failed test's guest in the test's folder, and end the guest; ``qemu_state`` names the file.

    Without a state the test's result is the same: a line says why there is none.
    """
    from orchestrator.artifacts.kept_guests import keep_guest

    kept = attempt(item)
    if kept.log is None:
        return
    file = kept.log.parent / f"{guest.console.path.stem}{_STATE}"
    try:
        keep_guest(guest, file)
    except LabError as error:
        say(f"warning: {item.nodeid}: {guest.console.path.stem}: {error}")
        return
    kept.properties.append(("qemu_state", str(file)))
    say(f"{item.nodeid}: {PROGRAM} shell --saved {shlex.quote(str(file))}")


def reproducing_command(item: pytest.Item) -> str:
    """A line for a shell that runs this test alone, with the guest that it had."""
    folder = str(item.config.rootpath)
    words = ["pytest", "--qemu", *settings_given(item.config), item.nodeid]
    here = Path.cwd() == item.config.rootpath
    return shlex.join(words) if here else f"cd {shlex.quote(folder)} && {shlex.join(words)}"
