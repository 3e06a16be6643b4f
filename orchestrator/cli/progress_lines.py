# SPDX-License-Identifier: GPL-2.0-only
"""A run's progress as lines of text."""

from __future__ import annotations

from typing import TextIO

from orchestrator.experiment.plan import Plan
from orchestrator.plain_text import counted, plain_text
from orchestrator.report.figures import figure
from orchestrator.report.footnotes import shared_key
from orchestrator.results.contract import CellRecord
from orchestrator.run.runner import ProgressListener, TimeLeft


class Listening(ProgressListener):
    """Formats the outcomes of cells, and repeats neither a reason, which later cells refer to, nor a warning."""

    def __init__(self) -> None:
        self._first_with_reason: dict[str, str] = {}
        self._warned: set[str] = set()

    def _outcome(self, record: CellRecord, name: str) -> str:
        """One line on how a cell ended; later cells with the same reason refer to ``name``."""
        whole = outcome(record)
        first = whole
        if record.reason is not None:
            first = self._first_with_reason.setdefault(shared_key(record.reason), name)
        shorter = f"{record.status}, as {first}"
        return whole if first in (whole, name) or len(shorter) > len(whole) else shorter

    def _is_new(self, warning: str) -> bool:
        is_new = warning not in self._warned
        self._warned.add(warning)
        return is_new


class Lines(Listening):
    """Prints each message and each outcome on a line of ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._total = 0
        self._done = 0
        self._left: TimeLeft | None = None

    def begin(self, run: str, plan: Plan, done: int, left: TimeLeft) -> None:
        self._total, self._done, self._left = len(plan.cells), done, left
        of_them = f", {done} of them done" if done else ""
        self.say(f"run {run}: {counted(self._total, 'cell')}{of_them}{self._time_left()}")

    def say(self, text: str) -> None:
        print(plain_text(text), file=self._stream, flush=True)

    def worker_says(self, worker: str, text: str) -> None:
        self.say(f"{worker}: {text}")

    def warn(self, text: str) -> None:
        if self._is_new(text):
            self.say(text)

    def cell_ends(self, record: CellRecord) -> None:
        self._done += 1
        if self._left is not None:
            self._left.ended(record.id)
        number = f"[{self._done}/{self._total}]"
        self.say(f"{number} {record.id}: {self._outcome(record, number)}{self._time_left()}")

    def _time_left(self) -> str:
        text = "" if self._left is None else self._left.text()
        return f", {text}" if text else ""


def outcome(record: CellRecord) -> str:
    """One line on a cell's result."""
    if record.value is None:
        return f"{record.status}: {(record.reason or '').splitlines()[0]}"
    more = f" (overhead {figure(record.overhead, record.unit)})" if record.overhead else ""
    if record.verdict is not None:
        more += ", no verdict"
    per = record.metric.removeprefix("cost ")
    return f"{figure(record.value, record.unit)} {record.unit} {per}{more}"
