# SPDX-License-Identifier: GPL-2.0-only
"""What the report of a failed test shows besides the test's own lines: the last steps, and the console meanwhile."""

from __future__ import annotations

import pytest

from orchestrator.pytest_plugin.session import GUESTS, LOG

_STEPS = 20
_CONSOLE_LINES = 40


def failure_sections(item: pytest.Item) -> list[tuple[str, str]]:
    """Titles and texts for a test's report."""
    sections = []
    if LOG in item.stash:
        steps = item.stash[LOG].read_text(encoding="utf-8").splitlines()[-_STEPS:]
        sections.append((f"Last steps of {item.stash[LOG]}", "\n".join(steps)))
    for guest in item.stash.get(GUESTS, []):
        lines = guest.printed()[-_CONSOLE_LINES:]
        title = f"Console during the test, the end of {guest.console.path}"
        sections.append((title, "\n".join(lines or ["(nothing)"])))
    return sections
