# SPDX-License-Identifier: GPL-2.0-only
"""What does this process hold of the host: memory, descriptors, threads, processes, files?"""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orchestrator.report.chart import Curve, CurveChart, CurvePane

_MIB = 1 << 20
_QUOTED = 8
_FRAMES = 4
_POINTS = 12
"""Of each curve; a picture of 35 takes twice the bytes."""

COUNTED = ("descriptors", "threads", "processes", "files")


@dataclass(frozen=True)
class Held:
    """What is held after ``work`` guests or cells; ``resident`` and ``traced`` (Python's own objects) in bytes.

    ``processes`` are our children, dead ones that nobody has waited for among them.
    """

    work: int
    resident: int
    traced: int
    descriptors: int
    threads: int
    processes: int
    files: int


class Holdings:
    """What was held from time to time; ``folders`` are those whose files count. Allocations are traced until closed."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.course: list[Held] = []
        self._folders = folders
        self._first: tuple[dict[str, Counter[str]], tracemalloc.Snapshot] | None = None
        self._more: dict[str, Counter[str]] = {}
        tracemalloc.start(_FRAMES)

    def close(self) -> None:
        """Trace no more."""
        tracemalloc.stop()

    def warmed_up(self, work: int) -> None:
        """From here on nothing may grow."""
        self.course.clear()
        self._first = self._named(), _snapshot()
        self.look(work)

    def look(self, work: int) -> None:
        """Add what is held now."""
        assert self._first is not None
        gc.collect()
        named = self._named()
        for name in COUNTED:
            if named[name].total() > self._first[0][name].total() and name not in self._more:
                self._more[name] = named[name] - self._first[0][name]
        counts = (named[name].total() for name in COUNTED)
        self.course.append(Held(work, _resident(), tracemalloc.get_traced_memory()[0], *counts))

    def check(self, bytes_each: int) -> None:
        """Raise AssertionError unless all that can be counted was never more than after the warm-up.

        ``bytes_each`` is how much of Python's own memory may stay for each guest or cell. The time between two looks
        in which most was added is left out: once in a while the interpreter makes its table of interned strings anew,
        after some 400 guests with 3.7 MiB in place of 1.9.
        """
        assert not self._more, f"more than after the warm-up: {self._more}"
        added = [two.traced - held.traced for held, two in pairwise(self.course)]
        each = (sum(added) - max(added)) / (self.course[-1].work - self.course[0].work)
        assert each <= bytes_each, f"{each:.0f} bytes stay each time; where they are from:\n{self._growth()}"

    def chart(self, title: str, across: str) -> CurveChart:
        """A picture of some of it, from the end of the warm-up."""
        course = [*self.course[: -1 : -(-len(self.course) // _POINTS)], self.course[-1]]
        memory = [
            Curve("resident", [(held.work, held.resident / _MIB) for held in course]),
            Curve("of that Python's objects", [(held.work, held.traced / _MIB) for held in course]),
        ]
        counts = {name: Curve(name, [(held.work, getattr(held, name)) for held in course]) for name in COUNTED}
        subtitle = f"one process, from {across[:-1]} {course[0].work} on"
        many, few = ([counts[name] for name in names] for names in (("descriptors", "files"), ("threads", "processes")))
        panes = [("MiB", memory), ("descriptors, files", many), ("threads, processes", few)]
        return CurveChart(title, subtitle, [CurvePane(across, upwards, curves) for upwards, curves in panes])

    def __str__(self) -> str:
        first, last = self.course[0], self.course[-1]
        return "; ".join(
            f"after {held.work}: resident {held.resident / _MIB:.1f} MiB, traced {held.traced / 1024:.0f} KiB, "
            f"{held.descriptors} descriptors, {held.threads} threads, {held.processes} processes, {held.files} files"
            for held in (first, last)
        )

    def _growth(self) -> str:
        assert self._first is not None
        grown = _snapshot().compare_to(self._first[1], "traceback")[:_QUOTED]
        return "\n".join("\n".join([str(diff), *diff.traceback.format()]) for diff in grown)

    def _named(self) -> dict[str, Counter[str]]:
        lists = (_descriptors(), _threads(), _processes(), _files(self._folders))
        return {name: Counter(found) for name, found in zip(COUNTED, lists, strict=True)}


def _snapshot() -> tracemalloc.Snapshot:
    gc.collect()
    return tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _descriptors() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        try:
            yield str(link.readlink()).partition(":[")[0]
        except FileNotFoundError:  # that of the folder itself
            continue


def _threads() -> Iterator[str]:
    named = [thread.name for thread in threading.enumerate()]
    yield from named
    # Those that a library has started without Python's knowledge.
    yield from ["not Python's"] * (len(list(Path("/proc/self/task").iterdir())) - len(named))


def _processes() -> Iterator[str]:
    for task in Path("/proc/self/task").iterdir():
        for number in (task / "children").read_text().split():
            yield Path(f"/proc/{number}/comm").read_text().strip()


def _files(folders: Sequence[Path]) -> Iterator[str]:
    # Links are not followed: the user's cache is not counted.
    return (f"{folder.name}/{file.relative_to(folder)}" for folder in folders for file in folder.rglob("*"))
