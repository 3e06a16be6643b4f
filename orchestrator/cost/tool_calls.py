# SPDX-License-Identifier: GPL-2.0-only
"""Which calls of the table reach a tool: a guest starts it and makes each, and the kernel counts its programs' runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pydantic import Field

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.artifacts.module_files import loaded_files
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.catalog.tools import ToolCommand
from orchestrator.cost.call_table import TableCall
from orchestrator.cost.counted_table import TablePart, call_digests, made_by, table_parts
from orchestrator.deadline import Deadline
from orchestrator.errors import CommandFailed, EvidenceError, UnsupportedError
from orchestrator.experiment.guest_spec import GuestSpec, MachineSpec
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_scripts import lab_script
from orchestrator.probes import bpf_program, tool_attachment
from orchestrator.probes.tool_attachment import MeasuredProgram, pinned_programs, running_tool
from orchestrator.results.contract import Record
from orchestrator.run.benchmark_kind import BootArtifacts
from orchestrator.run.machines import machine_for
from orchestrator.run.ready_guest import ready_guest
from orchestrator.steps import step

_KIND, _FILE = "tool-calls", "calls.json"
_CALLS = 20
_TIME_LIMIT, _WHOLE_LIMIT = 60.0, 1800.0
_MOST_LINES = 3
"""Calls that a tool is measured with: those that reach most of its programs, one after the other."""


class ToolCalls(Record):
    """Where a tool's ``programs`` are attached, and by a call's name how often one call runs each of them.

    ``failures`` says by a call's name why that is not known: the kernel has no such call, or it fails there.
    """

    programs: tuple[str, ...]
    calls: dict[str, tuple[int, ...]]
    failures: dict[str, str] = Field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether each program is reached by a call."""
        return bool(self.programs) and all(
            any(runs[place] for runs in self.calls.values()) for place in range(len(self.programs))
        )

    @property
    def reaching(self) -> Sequence[str]:
        """The calls that together reach all programs that any does, the one that reaches most of them first."""
        names: list[str] = []
        left = {place for runs in self.calls.values() for place, times in enumerate(runs) if times}
        while left and len(names) < _MOST_LINES:
            name = max(self.calls, key=lambda call: sum(bool(self.calls[call][place]) for place in left))
            names.append(name)
            left -= {place for place, times in enumerate(self.calls[name]) if times}
        return names


def tool_calls(
    context: BuildContext, kernel: Kernel, machine: MachineSpec, command: ToolCommand, image: str | None
) -> ToolCalls:
    """The calls that reach a tool. Parts of the table behind those that reach all of its programs are not made.

    Calls that need modules of the kernel are made where no others reach a program. Raises HostError, BuildError,
    GuestError, and EvidenceError for a tool that does not attach its programs.
    """
    known = ToolCalls(programs=(), calls={})
    for part in table_parts(kernel):
        if known.is_complete or (part.modules and known.calls):
            break
        counted = _counted_part(context, kernel, machine, command, image, part)
        if known.programs and counted.programs != known.programs:
            raise EvidenceError(f"{command.program} attaches other programs each time that it is started")
        known = ToolCalls(
            programs=counted.programs,
            calls={**known.calls, **counted.calls},
            failures={**known.failures, **counted.failures},
        )
    return known


def _counted_part(
    context: BuildContext,
    kernel: Kernel,
    machine: MachineSpec,
    command: ToolCommand,
    image: str | None,
    part: TablePart,
) -> ToolCalls:
    """What the calls of a part reach; cached by kernel, machine, image, command, and calls."""
    fields = {**machine.model_dump(), "image": image, "kernel_modules": bool(part.modules)}
    spec = GuestSpec(kernel=kernel.spec.argument, timing="instructions", **fields)
    artifacts = BootArtifacts(kernel, machine_for(context, kernel, spec), {}, loaded_files(kernel, part.modules))
    inputs: Mapping[str, object] = {
        **artifacts.keys,
        "cpu": repr(spec.cpu_model),
        "memory": spec.memory_mib,
        "tool": sha256_of(bpf_tool(context, kernel.spec.arch)),
        **_inputs(command, part.calls),
    }

    def count(folder: Path) -> None:
        context.say(f"looking which calls reach {command.program} on {kernel.spec.name}")
        with (
            ScratchFolder("orchestrator-tool-") as scratch,
            ready_guest(context, artifacts, scratch, "guest") as ready,
        ):
            calls = _counted(context, ready.guest, kernel, command, part.calls)
        (folder / _FILE).write_text(calls.model_dump_json())

    title = f"calls that reach {command.program}"
    return ToolCalls.stored_in(context.cache.obtain(_KIND, inputs, title, count).path / _FILE)


def _inputs(command: ToolCommand, table: Sequence[TableCall]) -> Mapping[str, object]:
    """What decides the counts besides guest and kernel. How a tool is started, and its environment, is in code."""
    started_by = [lab_script("find-tool.sh").decode(), sha256_of(Path(tool_attachment.__file__))]
    return {
        "command": [*command.argv],
        "file": None if command.file is None else sha256_of(command.file),
        "started by": digest(started_by),
        "table": call_digests(table),
        "calls": _CALLS,
    }


def _counted(
    context: BuildContext, guest: Guest, kernel: Kernel, command: ToolCommand, table: Sequence[TableCall]
) -> ToolCalls:
    arch = kernel.spec.arch
    bpf_program.bring(guest, bpf_tool(context, arch))
    bpf_program.compile_programs(guest, on=True)
    deadline = Deadline(_WHOLE_LIMIT)
    with running_tool(guest, command, deadline.left) as (process, _):
        programs = pinned_programs(guest, process)
        bpf_program.keep_statistics(guest, on=True)
        made = partial(made_by, context, arch)
        by_call, failures = _reached(command, table, made, partial(_each, guest, programs))
        bpf_program.keep_statistics(guest, on=False)
        guest.succeed(["sh", "-c", "rm -rf /sys/fs/bpf/lab-*"])
    return ToolCalls(programs=tuple(each.places for each in programs), calls=by_call, failures=failures)


def _reached(
    command: ToolCommand,
    table: Sequence[TableCall],
    made: Callable[[TableCall], Calls | None],
    runs: Callable[[Calls], tuple[int, ...]],
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """The runs of calls that reach a program, and why those of others are not known."""
    by_call: dict[str, tuple[int, ...]] = {}
    failures: dict[str, str] = {}
    for call in table:
        calls = made(call)
        if calls is None:
            failures[call.name] = f"programs have no system call {call.call} here"
            continue
        try:
            with step(f"make {call.name} beside {command.program}"):
                of_call = runs(calls)
        except (EvidenceError, UnsupportedError, CommandFailed) as error:
            failures[call.name] = str(error)
            continue
        if any(of_call):
            by_call[call.name] = of_call
    return by_call, failures


def _each(guest: Guest, programs: Sequence[MeasuredProgram], calls: Calls) -> tuple[int, ...]:
    """How often a call runs each program: the runs of some calls, less those of a process that makes none."""
    calls.prepare(guest)
    of_calls = _runs(guest, programs, calls, _CALLS)
    if max(of_calls, default=0) <= _CALLS // 2:
        return (0,) * len(programs)
    idle = _runs(guest, programs, calls, 0)
    return tuple(max(0, runs - besides + _CALLS // 2) // _CALLS for runs, besides in zip(of_calls, idle, strict=True))


def _runs(guest: Guest, programs: Sequence[MeasuredProgram], calls: Calls, number: int) -> Sequence[int]:
    before = bpf_program.infos(guest, [each.program for each in programs])
    calls.call(guest, number, caller=None, time_limit=_TIME_LIMIT)
    after = bpf_program.infos(guest, [each.program for each in programs])
    return [now.runs - then.runs for now, then in zip(after, before, strict=True)]
