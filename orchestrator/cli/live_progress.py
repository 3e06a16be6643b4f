# SPDX-License-Identifier: GPL-2.0-only
"""A run's progress on a terminal: a bar, what its guests or workers do, and the outcomes of cells above it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from orchestrator.cli.progress_lines import Listening
from orchestrator.experiment.plan import Plan
from orchestrator.guest.guest import Guest, State
from orchestrator.plain_text import plain_line, plain_text
from orchestrator.results.contract import CellRecord
from orchestrator.run.runner import TimeLeft
from orchestrator.steps import running_steps

_MOST_DETAILS = 8
"""Lines below the bar, of guests or workers."""


class _Display(Progress):
    guests: Sequence[Guest] = ()
    workers: Mapping[str, str] = MappingProxyType({})
    """The activity of a fleet's workers, by name; empty for an idle one."""
    left: TimeLeft | None = None

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        text = "" if self.left is None else self.left.text()
        if text:
            yield Text(f"  {text}", style="dim")
        workers = [f"{name}: {text}" for name, text in self.workers.items()]
        for line in (workers or details(self.guests))[:_MOST_DETAILS]:
            yield Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis")


class _Live(Listening):
    def __init__(self, progress: _Display) -> None:
        super().__init__()
        self._progress = progress
        self._task = progress.add_task("preparing", total=None)

    def begin(self, run: str, plan: Plan, done: int, left: TimeLeft) -> None:
        self._progress.console.print(f"run {run}", highlight=False)
        self._progress.left = left
        self._progress.update(self._task, total=len(plan.cells), completed=done)

    def say(self, text: str) -> None:
        # Refresh now: the display's thread would wake up too late for short work.
        self._progress.update(self._task, description=plain_line(text), refresh=True)

    def worker_says(self, worker: str, text: str) -> None:
        # A new mapping: the display's thread may be reading the old one.
        self._progress.workers = {**self._progress.workers, worker: plain_line(text)}

    def warn(self, text: str) -> None:
        if self._is_new(text):
            self._progress.console.print(plain_text(text), markup=False, highlight=False, soft_wrap=True)

    def guest_starts(self, guest: Guest) -> None:
        alive = [running for running in self._progress.guests if running.state is not State.GONE]
        self._progress.guests = (*alive, guest)  # a new tuple, for the same reason

    def cell_begins(self, cell_id: str) -> None:
        self.say(f"measuring {cell_id}")

    def cell_ends(self, record: CellRecord) -> None:
        style = {"ok": "green", "failed": "bold red"}.get(record.status, "yellow")
        self._progress.console.print(f"[{style}]{record.status:>6}[/] ", end="")
        text = f"{record.id}: {self._outcome(record, record.id)}"
        self._progress.console.print(text, markup=False, highlight=False)
        if self._progress.left is not None:
            self._progress.left.ended(record.id)
        self._progress.advance(self._task)


def details(guests: Iterable[Guest]) -> list[str]:
    """The last console lines of the guests that are starting or run unattended, else the running steps."""
    lines = [guest.console.last_line() for guest in guests if guest.state is State.STARTING]
    return [line for line in lines if line] or running_steps()


@contextmanager
def live_progress(stream: TextIO) -> Iterator[_Live | None]:
    """A progress display on ``stream``; None unless that is a terminal that can move its cursor."""
    console = Console(file=stream)
    if not console.is_terminal or console.is_dumb_terminal:
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with _Display(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield _Live(progress)
