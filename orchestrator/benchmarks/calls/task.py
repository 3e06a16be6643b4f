# SPDX-License-Identifier: GPL-2.0-only
"""What one cell of calls runs, and its probe point."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.benchmarks.calls.benchmarks import Entry
from orchestrator.benchmarks.calls.call_programs import Argument
from orchestrator.benchmarks.calls.outcome import Expected
from orchestrator.experiment.cell import Cell


@dataclass(frozen=True)
class CallTask:
    """``calls`` calls a sample, each entering the probe point ``hits`` times.

    ``probe`` is a catalogue's name or an absolute path, ``point`` None where the benchmark's own function is probed.
    Where the point ``is_found``, a guest has executed it, and the experiment does not name it; with a ``refusal`` it
    cannot be probed. ``call`` is a system call's name with its ``arguments``, of which each must return what is
    ``expected``; ``file`` is a user's workload, linked with shared ``libraries``: an image's names or absolute paths.
    """

    probe: str
    point: str | None
    calls: int
    entry: Entry
    call: str | None
    arguments: tuple[Argument, ...]
    file: str | None
    hits: int
    expected: Expected | None
    is_found: bool = False
    refusal: str | None = None
    libraries: tuple[str, ...] = ()


CallCell = Cell[CallTask]
