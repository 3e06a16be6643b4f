# SPDX-License-Identifier: GPL-2.0-only
"""What the report of a failed test shows besides the test's own lines: the last steps, and the console meanwhile."""

from __future__ import annotations

from orchestrator.pytest_plugin.session import Attempt

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
