# SPDX-License-Identifier: GPL-2.0-only
"""What runs of whole programs come to: one cold, several warm, and what they did, which is the same each time.

The output of ``images/unattended/runs.sh``: for each run a line that names it, the line of ``macrobench``, and what the
benchmark's own script reports of what was done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from orchestrator.errors import EvidenceError

_NAMES = ("real", "user", "system", "minor", "major", "switches")
_RUN = re.compile("run " + " ".join(rf"{name}=([0-9]{{1,16}})" for name in _NAMES))
_QUOTED = 5
"""Lines before and behind the one that was not expected."""

T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """One run: times in ns of the guest, faults that needed reading (major) or not, and context switches.

    ``real`` is from before the fork to after the end; the others are the program's and those of all that it started.
    """

    real: float
    user: float
    system: float
    minor: int
    major: int
    switches: int


@dataclass(frozen=True)
class SystemFigures:
    """The runs, how much each did, a SHA-256 of what that was (empty where nothing is to tell), and more facts."""

    cold: Run
    warm: tuple[Run, ...]
    done: int
    digest: str
    facts: Mapping[str, int | float | str] = field(default_factory=dict)


def read_runs(text: str, warm: int, told: int, read: Callable[[Sequence[str]], T]) -> tuple[list[Run], list[T]]:
    """The cold and so many warm runs, and what ``read`` makes of the ``told`` lines of each; it may raise ValueError.

    Raises EvidenceError, quoting what was said, for anything else that was printed.
    """
    lines = text.splitlines()
    size = 2 + told
    titles = ["cold", *(f"warm {number}" for number in range(1, warm + 1))]
    runs: list[Run] = []
    outcomes: list[T] = []
    for at, title in zip(range(0, len(titles) * size, size), titles, strict=True):
        block = lines[at : at + size]
        if block[:1] != [title]:
            refuse(lines, at, f"there is no run '{title}'")
        if len(block) < size:
            refuse(lines, at, f"run '{title}' is not told to its end")
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
    """Raise EvidenceError that says why the output is none, with what was printed around a line."""
    said = [line[:200] for line in lines[max(0, at - _QUOTED) : at + _QUOTED]]
    raise EvidenceError(f"the work in the guest did not go as planned: {why}", detail=said)


def _run(line: str) -> Run:
    match = _RUN.fullmatch(line)
    if match is None:
        raise ValueError(f"found {line[:200]!r}, which is not what a run took")
    real, user, system, minor, major, switches = (int(number) for number in match.groups())
    if not real:
        raise ValueError("it took no time")
    return Run(float(real), float(user), float(system), minor, major, switches)
