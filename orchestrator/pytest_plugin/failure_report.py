# SPDX-License-Identifier: GPL-2.0-only
"""What the report of a failed test shows besides the test's own lines: the last steps, and the console meanwhile."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest

from orchestrator.errors import LabError
from orchestrator.program import PROGRAM
from orchestrator.pytest_plugin.session import Attempt, attempt, settings_given
from orchestrator.pytest_plugin.tested_guest import TestedGuest

_STEPS = 20
_CONSOLE_LINES = 40


def failure_sections(kept: Attempt) -> list[tuple[str, str]]:
    """Titles and texts for the report of an attempt at a test."""
    sections = []
    if kept.log is not None:
        steps = kept.log.read_text(encoding="utf-8").splitlines()[-_STEPS:]
        sections.append((f"Last steps of {kept.log}", "\n".join(steps)))
    for guest in kept.guests:
        lines = guest.printed()[-_CONSOLE_LINES:]
        title = f"Console during the test, the end of {guest.console.path}"
        sections.append((title, "\n".join(lines or ["(nothing)"])))
    return sections


# A failed test shows its own lines: the frames of the lab are cut off an expected failure's traceback.

_OURS = ("orchestrator.", "contextlib")


def without_our_frames(error: Exception) -> None:
    """Cut the frames of the lab off the tracebacks of an expected failure, and of those that led to it.

    An error of another kind keeps them: it may be the lab's own.
    """
    cause: BaseException | None = error
    while isinstance(cause, LabError):
        cause.__traceback__ = _kept(cause.__traceback__)
        cause = cause.__cause__ or cause.__context__


def _kept(trace: TracebackType | None) -> TracebackType | None:
    """The entries up to the first of the lab's that is followed by no other."""
    entries = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    while len(entries) > 1 and _is_ours(entries[-1]):
        entries.pop()
    kept: TracebackType | None = None
    for entry in reversed(entries):
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _is_ours(entry: TracebackType) -> bool:
    name = str(entry.tb_frame.f_globals.get("__name__", ""))
    return name.startswith(_OURS)


# What is kept of a test's guests, in the test's folder and in the JUnit XML, and the command that repeats the test.

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
    from orchestrator.artifacts.saved_guests import keep_guest

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
