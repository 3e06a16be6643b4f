# SPDX-License-Identifier: GPL-2.0-only
"""The figures of runs of whole programs: one cold run, several warm ones, and their outcome, the same in each.

The output of ``images/unattended/runs.sh`` has for each run a line that names it, the line of ``macrobench``, and the
lines in which the benchmark's own script reports the outcome.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from orchestrator.errors import EvidenceError

_NAMES = ("real", "user", "system", "minor", "major", "switches", "tsc")
_RUN = re.compile("run " + " ".join(rf"{name}=([0-9]{{1,16}})" for name in _NAMES))
_QUOTED = 5
"""Lines quoted before and after the unexpected one."""

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One run: times in guest nanoseconds, page faults with reading (major) and without, and context switches.

    ``real`` is from before the fork to after the end, ``ticks`` of the TSC around both readings of that clock; the
    others are sums over the program and its descendants.
    """

    real: float
    user: float
    system: float
    minor: int
    major: int
    switches: int
    ticks: int


@dataclass(frozen=True)
class SystemFigures:
    """The runs, the amount of work of each, the SHA-256 of its result (empty without a result), and more facts."""

    cold: Run
    warm: tuple[Run, ...]
    done: int
    digest: str
    facts: Mapping[str, int | float | str] = field(default_factory=dict)


def read_runs(text: str, warm: int, reported: int, read: Callable[[Sequence[str]], T]) -> tuple[list[Run], list[T]]:
    """The cold and ``warm`` warm runs, and the value that ``read`` returns for the ``reported`` lines of each.

    ``read`` may raise ValueError. Raises EvidenceError, which quotes the output, for any other output.
    """
    lines = text.splitlines()
    size = 2 + reported
    titles = ["cold", *(f"warm {number}" for number in range(1, warm + 1))]
    runs: list[Run] = []
    outcomes: list[T] = []
    for at, title in zip(range(0, len(titles) * size, size), titles, strict=True):
        block = lines[at : at + size]
        if block[:1] != [title]:
            refuse(lines, at, f"there is no run '{title}'")
        if len(block) < size:
            refuse(lines, at, f"the report of run '{title}' is incomplete")
        try:
            runs.append(_run(block[1]))
            outcomes.append(read(block[2:]))
        except ValueError as error:
            refuse(lines, at, f"run '{title}': {error}")
    if len(lines) > len(titles) * size:
        refuse(lines, len(titles) * size, "there is more than the runs")
    return runs, outcomes


def check_alike(text: str, what: str, values: Sequence[int | str]) -> None:
    """Raise EvidenceError where the runs did not all do the same."""
    if len(set(values)) != 1:
        refuse(text.splitlines(), 0, f"the runs differ in {what}: {', '.join(str(value) for value in values)}"[:500])


def refuse(lines: Sequence[str], at: int, why: str) -> NoReturn:
    """Raise EvidenceError with the reason why the output is invalid, and the lines around line ``at``."""
    around = [line[:200] for line in lines[max(0, at - _QUOTED) : at + _QUOTED]]
    raise EvidenceError(f"the work in the guest did not go as planned: {why}", detail=around)


def _run(line: str) -> Run:
    match = _RUN.fullmatch(line)
    if match is None:
        raise ValueError(f"found {line[:200]!r}, which is not what a run took")
    real, user, system, minor, major, switches, ticks = (int(number) for number in match.groups())
    if not real:
        raise ValueError("it took no time")
    return Run(float(real), float(user), float(system), minor, major, switches, ticks)
