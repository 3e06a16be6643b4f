# SPDX-License-Identifier: GPL-2.0-only
"""The report of a failed test: its own frames, the last steps, and the console meanwhile. Imports nothing heavy."""

from __future__ import annotations

import sys

from orchestrator.pytest_plugin.session import Attempt

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
