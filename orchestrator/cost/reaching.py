# SPDX-License-Identifier: GPL-2.0-only
"""The table of calls, and which of them reach a function of a kernel: one guest makes all of them, and counts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

from pydantic import Field

from orchestrator.arch import ARCHITECTURES, Arch
from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.compiler import compiled_workload
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.benchmarks import Buffer
from orchestrator.benchmarks.calls.call_programs import Calls, system_call, user_function
from orchestrator.benchmarks.calls.call_results import SUCCESS, Expected
from orchestrator.benchmarks.calls.executed import entries
from orchestrator.catalog.data import CatalogEntry, named, read
from orchestrator.catalog.system_calls import system_calls
from orchestrator.errors import EvidenceError, UnsupportedError, UsageError
from orchestrator.experiment.guest_spec import GuestSpec, MachineSpec
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.guest.guest import Guest
from orchestrator.paths import data_dir
from orchestrator.plain_text import shown
from orchestrator.profile.counted.counter import Counter
from orchestrator.results.contract import Record
from orchestrator.run.benchmark_kind import BootArtifacts
from orchestrator.run.boot import ReadyGuest, ready_guest
from orchestrator.run.machines import counting, machine_for
from orchestrator.steps import step

_FILE = "reached.json"
_CALLS = 3
"""Calls that are counted: what not all of them do is not theirs."""
_TIME_LIMIT = 60.0
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


@dataclass(frozen=True)
class FoundCall:
    """A call of the table that passes ``function``, or a system call of that name, ``hits`` times."""

    call: TableCall
    function: str
    hits: int

    @property
    def name(self) -> str:
        return self.call.name

    @property
    def benchmark(self) -> Mapping[str, object]:
        """The benchmark of an experiment, as plain values."""
        return self.call.benchmark if self.hits == 1 else {**self.call.benchmark, "hits": self.hits}


class ReachedFunctions(Record):
    """How often a call enters functions, by its name in the table and theirs; only those equally often in each call."""

    calls: dict[str, dict[str, int]]

    def call(self, function: str) -> FoundCall | None:
        """The call to reach a function with, or a function that a pattern such as ``vfs_rea*`` matches.

        One that enters it once comes first, then the table's order decides. Raises UsageError for a pattern of which
        each call enters several functions: a program at all of them has more hits than the function is entered.
        """
        pairs: list[tuple[TableCall, Mapping[str, int]]] = []
        for call in call_table().values():
            entered = {name: n for name, n in self.calls.get(call.name, {}).items() if fnmatchcase(name, function)}
            if entered:
                pairs.append((call, entered))
        if not pairs:
            return None
        call, functions = min(pairs, key=lambda pair: sum(pair[1].values()) > 1)  # the first of several
        if len(functions) > 1:
            names = ", ".join(shown(sorted(functions), _SHOWN))
            what = f"{call.name} enters {len(functions)} functions of this pattern: {names}"
            raise UsageError(what, where=function, hint="name one function, or a call that enters one of them: --call")
        ((name, hits),) = functions.items()
        return FoundCall(call, name, hits)

    def nearest(self, function: str) -> Sequence[str]:
        """At most five functions of similar names that calls reach, the most similar first."""
        names = sorted({name for functions in self.calls.values() for name in functions})
        return difflib.get_close_matches(function, names, n=5)


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


def reached_functions(context: BuildContext, kernel: Kernel, machine: MachineSpec) -> ReachedFunctions:
    """Which functions each call of the table enters; the result is cached by kernel, machine and table.

    A call that the kernel lacks, or that fails, enters none. Raises HostError, BuildError, GuestError, and
    EvidenceError for a guest that fails the checks.
    """
    spec = GuestSpec(kernel=kernel.spec.argument, timing="instructions", **machine.model_dump())
    artifacts = BootArtifacts(kernel, counting(context, machine_for(context, kernel, spec)), {})
    folders = ("guest", "guest/calls", "workload")
    sources = [file for folder in folders for file in (data_dir("images") / folder).iterdir() if file.is_file()]
    inputs = {
        **artifacts.keys,
        "cpu": repr(spec.cpu_model),
        "memory": spec.memory_mib,
        "table": repr([*call_table().values()]),
        "sources": {file.name: sha256_of(file) for file in sorted(sources)},
        "calls": _CALLS,
    }

    def count(folder: Path) -> None:
        workloads = dict(_workloads(context, kernel.spec.arch))
        context.say(f"counting what {len(workloads)} calls execute on {kernel.spec.name}")
        with (
            ScratchFolder("orchestrator-reached-") as scratch,
            ready_guest(context, artifacts, scratch, "guest") as ready,
        ):
            functions = ReachedFunctions(calls=dict(_entered(ready, workloads)))
        (folder / _FILE).write_text(functions.model_dump_json())

    title = f"functions that the table of calls reaches on {spec.cpu}"
    return ReachedFunctions.stored_in(context.cache.obtain("executed-functions", inputs, title, count).path / _FILE)


def made_by(context: BuildContext, arch: Arch, call: TableCall) -> Calls | None:
    """A few calls of the table; None if programs of ``arch`` have no such system call."""
    if call.call is None:
        program = user_function(compiled_workload(context, arch, call.file).file, calls=_CALLS)
        # A call that takes long is a batch of its own.
        expected, most = call.expect or SUCCESS, _CALLS if call.calls is None else 1
        return replace(program, expected=expected, largest_batch=most)
    number = system_calls()[call.call].number(arch, "auto")
    if number is None:
        return None
    word = ARCHITECTURES[arch].word
    made = system_call(number, call.arguments, entry="auto", word_size=word, calls=_CALLS)
    return replace(made, expected=call.expect or SUCCESS)


def _workloads(context: BuildContext, arch: Arch) -> Iterator[tuple[str, Calls]]:
    for call in (table_call for table_call in call_table().values() if not table_call.has_child):
        made = made_by(context, arch, call)
        if made is not None:
            yield call.name, made


def _entered(ready: ReadyGuest, workloads: Mapping[str, Calls]) -> Iterator[tuple[str, Mapping[str, int]]]:
    counter = Counter(ready.guest, ready.symbols)
    for name, workload in workloads.items():
        try:
            with step(f"count what {name} enters"):
                yield name, _entered_by(ready.guest, counter, workload)
        except (EvidenceError, UnsupportedError):  # the kernel has no such call, or it fails here
            continue


def _entered_by(guest: Guest, counter: Counter, workload: Calls) -> Mapping[str, int]:
    workload.prepare(guest)
    workload.watch(guest, time_limit=_TIME_LIMIT, calls=_CALLS)
    mark = counter.mark()
    marked = workload.mark_calls(guest, time_limit=_TIME_LIMIT)
    # QEMU counts the instruction of a page fault twice, so the clock proves no counts; those of entries are right.
    counts = counter.regions_since(mark)[-1].counts
    symbols = counter.places(workload.program).symbols(counts)
    times = {symbol.name: entries(symbol) for symbol in symbols if symbol.place in ("kernel", "module")}
    return {name: count // marked.calls for name, count in times.items() if count and count % marked.calls == 0}
