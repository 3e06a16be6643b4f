# SPDX-License-Identifier: GPL-2.0-only
"""What each call of the table enters and fires on a kernel: guests that count instructions make all of them.

In a first guest functions are counted: the executions of their first instructions. In a second one all events of the
kernel are enabled twice. A tracepoint with two functions calls its ``__traceiter_NAME`` at each hit (since Linux 5.10),
so that the entries of these are the hits of the tracepoints. Both see what any thread does between a call's beginning
and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import Field

from orchestrator.arch import ARCHITECTURES, Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.module_files import loaded_files, missing_module_reason
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.user_programs import compiled_workload
from orchestrator.benchmarks.calls.call_programs import Calls, system_call, user_function
from orchestrator.benchmarks.calls.call_results import SUCCESS
from orchestrator.benchmarks.calls.executed import entries
from orchestrator.catalog.system_calls import system_calls
from orchestrator.cost.call_table import ReachedNames, TableCall, call_table
from orchestrator.errors import BuildError, CommandFailed, EvidenceError, GuestError, LabError, UnsupportedError
from orchestrator.experiment.guest_spec import GuestSpec, MachineSpec
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.guest.guest_scripts import lab_script
from orchestrator.paths import data_dir
from orchestrator.probes.tracefs import TRACEFS
from orchestrator.probes.tracepoints import ITERATOR
from orchestrator.profile.counted.counter import Counter
from orchestrator.results.contract import Record
from orchestrator.run.benchmark_kind import BootArtifacts
from orchestrator.run.machines import counting, machine_for
from orchestrator.run.ready_guest import ReadyGuest, ready_guest
from orchestrator.steps import step

_KIND, _FILE = "executed-functions", "calls.json"
_ENTERING, _FIRING = 3, 20
"""Calls that are counted: what not all of them do is not theirs. The program makes a hundred before them."""
_PART = 45
"""Calls that are counted at once. The first of the table reach most of what is asked for, and take a minute."""
_TIME_LIMIT = 60.0
_ENABLE_LIMIT = 180.0
"""Host seconds to enable some 600 events twice; it takes three on an idle host."""
_TRIES = 2
"""Guests that a call may fail with before it is left out."""

_Counted = TypeVar("_Counted")


class CountedCall(Record):
    """How often one call enters functions, and hits tracepoints; only those equally often in each of several calls.

    ``failure`` says why they are not known, or not all.
    """

    functions: dict[str, int] = Field(default_factory=dict)
    tracepoints: dict[str, int] = Field(default_factory=dict)
    failure: str = ""


class CountedTable(Record):
    """The calls of the table by name, counted on one kernel."""

    calls: dict[str, CountedCall]

    @cached_property
    def functions(self) -> ReachedNames:
        """Those of the kernel and its modules that calls enter, whichever process."""
        return ReachedNames({name: call.functions for name, call in self.calls.items()})

    @cached_property
    def functions_of_one_process(self) -> ReachedNames:
        """The same without calls that other processes execute a part of: most probes count hits of one process."""
        alone = {name: call for name, call in self.calls.items() if not call_table()[name].has_child}
        return ReachedNames({name: call.functions for name, call in alone.items()})

    @cached_property
    def tracepoints(self) -> ReachedNames:
        """Those that calls hit, by their names without a system, but for the tracepoints of system calls."""
        return ReachedNames({name: call.tracepoints for name, call in self.calls.items()})


class TablePart(NamedTuple):
    """Calls of the table that are counted together, and the kernel's own ``modules`` that they need."""

    calls: Sequence[TableCall]
    modules: Sequence[str] = ()


def table_parts(kernel: Kernel) -> Sequence[TablePart]:
    """The table in the order of preference; last the calls that need modules, as far as the kernel has them."""
    plain = [call for call in call_table().values() if not call.modules]
    parts = [TablePart(plain[first : first + _PART]) for first in range(0, len(plain), _PART)]
    needing = [call for call in call_table().values() if call.modules]
    calls = [call for call in needing if missing_module_reason(kernel, call.modules) is None]
    modules = dict.fromkeys(module for call in calls for module in call.modules)
    return [*parts, TablePart(calls, [*modules])] if calls else parts


def counted_part(context: BuildContext, kernel: Kernel, machine: MachineSpec, part: TablePart) -> CountedTable:
    """What the calls of a part enter and fire; cached by kernel, machine and call.

    A changed call alone is counted anew. A call that the kernel lacks, or that fails, reaches nothing, and its
    ``failure`` says why. Raises HostError, GuestError, and EvidenceError for a guest that fails the checks.
    """
    return _counted_in(context, kernel, _artifacts(context, kernel, machine, part.modules), part.calls)


def counted_table(context: BuildContext, kernel: Kernel, machine: MachineSpec) -> CountedTable:
    """The same of all parts; raises the same."""
    parts = [counted_part(context, kernel, machine, part) for part in table_parts(kernel)]
    return CountedTable(calls={name: call for part in parts for name, call in part.calls.items()})


def _counted_in(
    context: BuildContext, kernel: Kernel, artifacts: BootArtifacts, calls: Sequence[TableCall]
) -> CountedTable:
    common = _common(artifacts)
    table = call_digests(calls)

    def count(folder: Path) -> None:
        known = _known(context, common, table)
        missing = [name for name in table if name not in known]
        context.say(f"counting what {len(missing)} calls execute on {kernel.spec.name}")
        fresh = _count(context, artifacts, [call_table()[name] for name in missing])
        counts = {**known, **fresh}
        (folder / _FILE).write_text(CountedTable(calls={name: counts[name] for name in table}).model_dump_json())

    artifact = context.cache.obtain(_KIND, {**common, "table": table}, _title(artifacts), count)
    return CountedTable.stored_in(artifact.path / _FILE)


def hit_tracepoints(
    context: BuildContext, kernel: Kernel, machine: MachineSpec, calls: Calls, modules: Sequence[str] = ()
) -> Mapping[str, int]:
    """How often each of such ``calls`` hits tracepoints, in any task; cached. Empty where the calls fail.

    They need these ``modules`` of the kernel's own. Raises as ``counted_table``.
    """
    artifacts = _artifacts(context, kernel, machine, modules)
    program = None if calls.file is None else sha256_of(calls.file)
    inputs = {**_common(artifacts), "calls": [*calls.argv, str(calls.expected)], "program": program}

    def count(folder: Path) -> None:
        context.say(f"counting which tracepoints the calls hit on {kernel.spec.name}")
        alone = {"calls": replace(calls, calls=_FIRING)}
        hits = _in_guests(context, artifacts, alone, _fired, _enable_events, {})
        (folder / _FILE).write_text(CountedCall(tracepoints=dict(hits.get("calls", {}))).model_dump_json())

    title = f"tracepoints that calls hit on {artifacts.machine.cpu.name}"
    return CountedCall.stored_in(context.cache.obtain(_KIND, inputs, title, count).path / _FILE).tracepoints


def _artifacts(
    context: BuildContext, kernel: Kernel, machine: MachineSpec, modules: Sequence[str] = ()
) -> BootArtifacts:
    fields = {**machine.model_dump(), "kernel_modules": bool(modules)}
    spec = GuestSpec(kernel=kernel.spec.argument, timing="instructions", **fields)
    loaded = loaded_files(kernel, modules)
    return BootArtifacts(kernel, counting(context, machine_for(context, kernel, spec)), {}, loaded)


def _title(artifacts: BootArtifacts) -> str:
    return f"what the table of calls reaches on {artifacts.machine.cpu.name}"


def _common(artifacts: BootArtifacts) -> Mapping[str, object]:
    return {
        **artifacts.keys,
        "cpu": repr(artifacts.machine.cpu),
        "memory": artifacts.machine.memory_mib,
        "counted": [_ENTERING, _FIRING],
        "enabled by": digest(lab_script(_ENABLE).decode()),
    }


def call_digests(calls: Sequence[TableCall]) -> Mapping[str, str]:
    """What decides the counts of each call, besides kernel and machine, by name."""
    images = data_dir("images")
    folders = (images / "guest", images / "workload")
    files = [file for folder in folders for file in folder.iterdir() if file.is_file()]
    shared = {file.name: sha256_of(file) for file in sorted([*files, *(images / "guest" / "calls").glob("*.h")])}
    return {call.name: digest([repr(call), "" if call.call else sha256_of(call.file), shared]) for call in calls}


def _known(context: BuildContext, common: Mapping[str, object], table: Mapping[str, str]) -> dict[str, CountedCall]:
    """The calls that were counted alike for other states of the table."""
    known: dict[str, CountedCall] = {}
    for place, artifact in context.cache.contents(_KIND):
        inputs = {} if artifact is None else dict(artifact.inputs)
        counted = inputs.pop("table", None)
        if artifact is None or not isinstance(counted, dict) or digest(inputs) != digest(common):
            continue
        with suppress(LabError):  # damaged: counted anew
            if context.cache.is_sound(artifact):
                calls = CountedTable.stored_in(place / _FILE).calls
                known |= {name: call for name, call in calls.items() if table.get(name) == counted.get(name)}
    return known


def made_by(context: BuildContext, arch: Arch, call: TableCall, calls: int = _ENTERING) -> Calls | None:
    """Some calls of the table; None if programs of ``arch`` have no such system call. Raises BuildError."""
    if call.call is None:
        program = user_function(compiled_workload(context, arch, call.file).file, calls=calls)
        # A call that takes long is a batch of its own.
        expected, most = call.expect or SUCCESS, calls if call.calls is None else 1
        return replace(program, expected=expected, largest_batch=most)
    number = system_calls()[call.call].number(arch, "auto")
    if number is None:
        return None
    word = ARCHITECTURES[arch].word
    made = system_call(number, call.arguments, entry="auto", word_size=word, calls=calls)
    return replace(made, expected=call.expect or SUCCESS)


def _count(context: BuildContext, artifacts: BootArtifacts, calls: list[TableCall]) -> Mapping[str, CountedCall]:
    made: dict[str, Calls] = {}
    failures: dict[str, str] = {}
    for call in calls:
        try:
            workload = made_by(context, artifacts.kernel.spec.arch, call)
        except BuildError as error:
            failures[call.name] = str(error)
            continue
        if workload is not None:
            made[call.name] = workload
        else:
            failures[call.name] = f"programs for {artifacts.kernel.spec.arch} have no system call {call.call}"
    functions = _in_guests(context, artifacts, made, _entered, _nothing, failures)
    fired = {name: replace(made[name], calls=_FIRING) for name in functions}
    tracepoints = _in_guests(context, artifacts, fired, _fired, _enable_events, failures)
    return {
        call.name: CountedCall(
            functions=functions.get(call.name, {}),
            tracepoints=tracepoints.get(call.name, {}),
            failure=failures.get(call.name, ""),
        )
        for call in calls
    }


def _in_guests(
    context: BuildContext,
    artifacts: BootArtifacts,
    calls: Mapping[str, Calls],
    count: Callable[[Counter, Calls], _Counted],
    begin: Callable[[ReadyGuest], None],
    failures: dict[str, str],
) -> Mapping[str, _Counted]:
    """What is counted of each call, in one guest; in another one behind a call that the guest does not survive.

    Such a call is tried again, last. ``failures`` gets why others are missing.
    """
    waiting, tries, counted = [*calls], dict.fromkeys(calls, 0), dict[str, _Counted]()
    while waiting:
        with (
            ScratchFolder("orchestrator-reached-") as scratch,
            ready_guest(context, artifacts, scratch, "guest") as ready,
        ):
            try:
                begin(ready)
            except (EvidenceError, UnsupportedError) as error:
                failures.update(dict.fromkeys(waiting, str(error)))
                return counted
            counter = Counter(ready.guest, ready.symbols)
            for name in [*waiting]:
                waiting.remove(name)
                failures.pop(name, None)
                try:
                    with step(f"count what {name} reaches"):
                        counted[name] = count(counter, calls[name])
                except (EvidenceError, UnsupportedError, CommandFailed) as error:  # the kernel has no such call
                    failures[name] = str(error)
                except GuestError as error:
                    failures[name], tries[name] = str(error), tries[name] + 1
                    waiting += [name] if tries[name] < _TRIES else []
                    break
    return counted


def _nothing(ready: ReadyGuest) -> None:
    """Functions are counted in a guest as it is."""


_ENABLE = "enable-events.sh"


def _enable_events(ready: ReadyGuest) -> None:
    """Enable all events. Raises UnsupportedError for a kernel that has none."""
    script = lab_script(_ENABLE).decode()
    enabled = ready.guest.run(["sh", "-c", script, "sh", TRACEFS], time_limit=_ENABLE_LIMIT)
    if enabled.status != 0:
        raise UnsupportedError("the kernel has no events to enable (CONFIG_EVENT_TRACING)")


def _entered(counter: Counter, workload: Calls) -> Mapping[str, int]:
    workload.prepare(counter.guest)
    workload.watch(counter.guest, time_limit=_TIME_LIMIT, calls=_ENTERING)
    mark = counter.mark()
    calls = workload.mark_calls(counter.guest, time_limit=_TIME_LIMIT).calls
    # QEMU counts the instruction of a page fault twice, so the clock proves no counts; those of entries are right.
    counts = counter.regions_since(mark)[-1].counts
    symbols = counter.places(workload.program).symbols(counts)
    kernels = (symbol for symbol in symbols if symbol.place in ("kernel", "module"))
    return _of_each({symbol.name: entries(symbol) for symbol in kernels}, calls)


def _fired(counter: Counter, workload: Calls) -> Mapping[str, int]:
    workload.prepare(counter.guest)
    mark = counter.mark()
    calls = workload.mark_calls(counter.guest, time_limit=_TIME_LIMIT).calls
    places = counter.places(workload.program)

    def hits() -> Iterator[tuple[str, int]]:
        for code, counts in counter.regions_since(mark)[-1].counts.items():
            function = places.function_at(code.address)
            if function is not None and function.address == code.address and function.name.startswith(ITERATOR):
                yield function.name.removeprefix(ITERATOR), counts.executed

    times: dict[str, int] = {}
    for name, executed in hits():  # a probed instruction has two forms
        times[name] = times.get(name, 0) + executed
    return _of_each(times, calls)


def _of_each(times: Mapping[str, int], calls: int) -> Mapping[str, int]:
    """How often each call does it, of what all of them do equally often."""
    return {name: count // calls for name, count in sorted(times.items()) if count and count % calls == 0}
