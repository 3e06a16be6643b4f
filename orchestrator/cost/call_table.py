# SPDX-License-Identifier: GPL-2.0-only
"""The table of calls, and which of them is taken to reach a function, a tracepoint or a system call."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

from pydantic import Field

from orchestrator.benchmarks.calls.benchmarks import Buffer
from orchestrator.benchmarks.calls.call_results import SUCCESS, Expected
from orchestrator.catalog.data import CatalogEntry, named, read
from orchestrator.errors import UsageError
from orchestrator.paths import data_dir
from orchestrator.plain_text import shown

_SHOWN = 5


class TableCall(CatalogEntry):
    """A call of the table: a system call with arguments, or a workload of C; see ``calls.yaml``."""

    name: str
    title: str
    call: str | None = None
    arguments: list[int | str | Buffer] = Field(default_factory=list)
    expect: Expected | None = None
    calls: int | None = None
    has_child: bool = False
    modules: list[str] = Field(default_factory=list)
    system_calls: list[str] = Field(default_factory=list)
    enters: list[str] = Field(default_factory=list)

    @property
    def events(self) -> Sequence[str]:
        """The names of the system calls that it makes, as the kernel's events have them."""
        return self.system_calls or [self.call or ""]

    @property
    def file(self) -> Path:
        return data_dir("images") / "guest" / "calls" / f"{self.name}.c"

    @property
    def benchmark(self) -> Mapping[str, object]:
        """The benchmark of an experiment that makes this call, as plain values."""
        if self.call is None:
            made: dict[str, object] = {"name": "workload", "file": str(self.file)}
        else:
            made = {"name": "syscall", "expect": self.expect or SUCCESS}
        return made | self.model_dump(include={"call", "arguments", "expect", "calls"}, exclude_defaults=True)


@lru_cache(maxsize=1)
def call_table() -> Mapping[str, TableCall]:
    """The calls by name, in the order of preference."""
    return named(TableCall, read("calls.yaml"))


def called_by(benchmark: Mapping[str, object]) -> str:
    """The name of the call of the table that a benchmark makes."""
    keys = ("name", "file", "call", "arguments", "expect")
    return next(
        call.name
        for call in call_table().values()
        if all(call.benchmark.get(key) == benchmark.get(key) for key in keys)
    )


def modules_for(benchmark: Mapping[str, object]) -> tuple[str, ...]:
    """The kernel's own modules that a benchmark's calls need: those of the workloads of the table, by their file."""
    by_file = {str(call.file): call.modules for call in call_table().values() if call.modules}
    return tuple(by_file.get(str(benchmark.get("file")), ()))


@dataclass(frozen=True)
class FoundCall:
    """A call of the table that reaches a function, a tracepoint or a system call of this name ``hits`` times."""

    call: TableCall
    name_reached: str
    hits: int

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def rank(self) -> tuple[int, bool]:
        """Of two calls the one with the smaller rank is taken."""
        return self.hits, self.call.has_child

    @property
    def benchmark(self) -> Mapping[str, object]:
        """The benchmark of an experiment, as plain values."""
        return self.call.benchmark if self.hits == 1 else {**self.call.benchmark, "hits": self.hits}


@dataclass(frozen=True)
class ReachedNames:
    """How often a call enters functions, or hits tracepoints, by its name in the table and theirs.

    Only those equally often in each call.
    """

    calls: Mapping[str, Mapping[str, int]]

    def call(self, pattern: str) -> FoundCall | None:
        """The call to reach a name with, or a name that a pattern such as ``vfs_rea*`` matches.

        One that reaches it the fewest times comes first, then one without another process, whose moments vary (of
        1000 forks on Linux 6.1 three switch tasks otherwise), then the table's order decides. Raises UsageError for a
        pattern of which each call reaches several names: a program at all of them has more hits than one of them.
        """
        pairs: list[tuple[TableCall, Mapping[str, int]]] = []
        for call in call_table().values():
            reached = {name: n for name, n in self.calls.get(call.name, {}).items() if fnmatchcase(name, pattern)}
            if reached:
                pairs.append((call, reached))
        if not pairs:
            return None
        call, times = min(pairs, key=lambda pair: (len(pair[1]) > 1, sum(pair[1].values()), pair[0].has_child))
        if len(times) > 1:
            names = ", ".join(shown(sorted(times), _SHOWN))
            what = f"{call.name} reaches {len(times)} of this pattern: {names}"
            raise UsageError(what, where=pattern, hint="name one of them, or a call that reaches one of them: --call")
        ((name, hits),) = times.items()
        return FoundCall(call, name, hits)

    def by(self, call: str) -> ReachedNames:
        """The same of one call alone."""
        return ReachedNames({call: self.calls.get(call, {})})

    def among(self, names: Collection[str]) -> ReachedNames:
        """The same of these names alone."""
        return ReachedNames(
            {call: {name: n for name, n in reached.items() if name in names} for call, reached in self.calls.items()}
        )

    def nearest(self, name: str) -> Sequence[str]:
        """At most five similar names that calls reach, the most similar first."""
        names = sorted({name for reached in self.calls.values() for name in reached})
        return difflib.get_close_matches(name, names, n=5)


def known_call(function: str) -> FoundCall | None:
    """The call that enters a much probed function on every kernel: no guest is asked. None for others."""
    calls = (FoundCall(call, function, 1) for call in call_table().values() if function in call.enters)
    return next(calls, None)


def reaching_system_call(name: str) -> FoundCall | None:
    """The call to reach ``syscalls:sys_enter_NAME`` with, or one of those that a pattern matches; None if none does.

    Raises UsageError for a pattern of which each call makes several: a program at all of them has more hits.
    """
    made = {
        call.name: sorted({event for event in call.events if fnmatchcase(event, name)})
        for call in call_table().values()
    }
    reaching = {call: events for call, events in made.items() if events}
    if reaching and all(len(events) > 1 for events in reaching.values()):
        call, events = next(iter(reaching.items()))
        what = f"{call} makes {len(events)} system calls of this pattern: {', '.join(events)}"
        raise UsageError(what, where=name, hint="name one of them")
    calls = ((call_table()[call], events[0]) for call, events in reaching.items() if len(events) == 1)
    matches = [FoundCall(call, event, call.events.count(event)) for call, event in calls]
    return min(matches, key=attrgetter("hits"), default=None)
