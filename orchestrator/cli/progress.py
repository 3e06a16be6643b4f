# SPDX-License-Identifier: GPL-2.0-only
"""A run's progress on stderr: live on a terminal, one line for each thing elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from orchestrator.experiment.plan import Plan
from orchestrator.report.figures import figure
from orchestrator.results.contract import CellRecord


class _Lines:
    """Plain lines: for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = 0
        self._done = 0
        self._warned: set[str] = set()

    def begin(self, run: str, plan: Plan, done: int) -> None:
        self._total, self._done = len(plan.cells), done
        self.say(f"run {run}: {self._total} cells" + (f", {done} of them done" if done else ""))

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self.say(text)

    def cell_begins(self, cell_id: str) -> None:
        del cell_id  # its end says it all

    def cell_ends(self, record: CellRecord) -> None:
        self._done += 1
        self.say(f"[{self._done}/{self._total}] {record.id}: {outcome(record)}")


class _Live:
    """A bar that knows what is going on, with finished cells scrolling by above it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("preparing", total=None)
        self._warned: set[str] = set()

    def begin(self, run: str, plan: Plan, done: int) -> None:
        self._progress.console.print(f"run {run}", highlight=False)
        self._progress.update(self._task, total=len(plan.cells), completed=done)

    def say(self, text: str) -> None:
        # Drawn at once: what takes less time than the display's own thread needs to wake up was not seen.
        self._progress.update(self._task, description=text, refresh=True)

    def warn(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def cell_begins(self, cell_id: str) -> None:
        self.say(f"measuring {cell_id}")

    def cell_ends(self, record: CellRecord) -> None:
        style = {"ok": "green", "failed": "bold red"}.get(record.status, "yellow")
        self._progress.console.print(f"[{style}]{record.status:>6}[/] ", end="")
        self._progress.console.print(f"{record.id}: {outcome(record)}", markup=False, highlight=False)
        self._progress.advance(self._task)


def outcome(record: CellRecord) -> str:
    """One line on how a cell ended."""
    if record.value is None:
        return f"{record.status}: {(record.reason or '').splitlines()[0]}"
    more = f" (overhead {figure(record.overhead, record.unit)})" if record.overhead else ""
    if record.verdict is not None:
        more += ", no verdict"
    per = record.metric.removeprefix("cost ")
    return f"{figure(record.value, record.unit)} {record.unit} {per}{more}"


@contextmanager
def listener(stream: TextIO) -> Iterator[_Lines | _Live]:
    """A run's progress display: live where the stream is a terminal that can move its cursor."""
    console = Console(file=stream)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _Lines(stream)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield _Live(progress)
