# SPDX-License-Identifier: GPL-2.0-only
"""What the report of a failed test shows: its own frames, the last steps, and the console meanwhile."""

from __future__ import annotations

from types import TracebackType

from orchestrator.errors import LabError
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
