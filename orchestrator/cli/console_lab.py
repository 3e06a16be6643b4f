# SPDX-License-Identifier: GPL-2.0-only
"""The lab of a command, which shows a run's progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from orchestrator.artifacts.cache import BuildContext
from orchestrator.cli import options
from orchestrator.experiment.plan import Plan
from orchestrator.guest.guest import Guest, State
from orchestrator.library.lab import Lab
from orchestrator.plain_text import counted, plain_line, plain_text
from orchestrator.report.figures import figure
from orchestrator.report.footnotes import shared_key
from orchestrator.results.contract import CellRecord
from orchestrator.run.runner import ProgressListener, TimeLeft
from orchestrator.steps import running_steps


class _Said(ProgressListener):
    """Prints on stderr what is said between runs."""

    def say(self, text: str) -> None:
        options.say(text)

    def warn(self, text: str) -> None:
        options.say(text)


@dataclass(frozen=True)
class ConsoleLab(Lab):
    """The lab of a command: its progress is on stderr, each step too if ``verbose``."""

    progress: ProgressListener = field(default_factory=_Said)
    verbose: bool = False

    _prefix: ClassVar[str] = "--"

    def spoken(self, text: str) -> str:
        return text

    @contextmanager
    def building(self) -> Iterator[BuildContext]:
        with options.building(offline=self.offline, verbose=self.verbose) as context:
            yield context

    @contextmanager
    def watched(self) -> Iterator[ProgressListener]:
        with listener(sys.stderr) as watching, options.printed_steps(verbose=self.verbose):
            yield watching


_MOST_DETAILS = 8
"""Lines below the bar, of guests or workers."""


class _Listening(ProgressListener):
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


class _Lines(_Listening):
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


class _Live(_Listening):
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


def outcome(record: CellRecord) -> str:
    """One line on a cell's result."""
    if record.value is None:
        return f"{record.status}: {(record.reason or '').splitlines()[0]}"
    more = f" (overhead {figure(record.overhead, record.unit)})" if record.overhead else ""
    if record.verdict is not None:
        more += ", no verdict"
    per = record.metric.removeprefix("cost ")
    return f"{figure(record.value, record.unit)} {record.unit} {per}{more}"


@contextmanager
def listener(stream: TextIO) -> Iterator[_Lines | _Live]:
    """A run's progress display, live on a terminal that can move its cursor."""
    console = Console(file=stream)
    if not console.is_terminal or console.is_dumb_terminal:
        yield _Lines(stream)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with _Display(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        yield _Live(progress)
