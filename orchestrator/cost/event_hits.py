# SPDX-License-Identifier: GPL-2.0-only
"""How often a call hits a tracepoint: a guest makes calls, and a BPF program of the lab's counts by process."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.artifacts.module_files import loaded_files
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError, UnsupportedError, UsageError
from orchestrator.experiment.guest_spec import GuestSpec, MachineSpec
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import counted
from orchestrator.probes import bpf_program
from orchestrator.probes.bpf_hits import nearest_multiple
from orchestrator.probes.bpf_program import AttachTarget
from orchestrator.probes.tracefs import event_number
from orchestrator.results.contract import Record
from orchestrator.run.benchmark_kind import BootArtifacts
from orchestrator.run.machines import machine_for
from orchestrator.run.ready_guest import ready_guest

_KIND = "event-hits"
_FILE = "hits.json"
_CALLS = 200
_MOST_INTERRUPTS = 20
"""Hits of a pass that interrupts may add: it takes a timer tick's period or two."""
_PASSES = 5
"""Two passes in a row have to give the same answer; otherwise there is none after so many."""
_TIME_LIMIT = 60.0
_EVENT = re.compile(r"(?:\w{1,64}:)?\w{1,64}")


class EventHits(Record):
    """How often ``calls`` calls hit an event, pass by pass; no pass where the kernel has no such event, or no BPF."""

    calls: int
    passes: tuple[int, ...]

    @property
    def is_repeated(self) -> bool:
        """Whether the last two passes give the same answer."""
        if len(self.passes) < 2:
            return False
        before, last = self.passes[-2:]
        each = nearest_multiple(last, self.calls)
        return before == last or (
            each == nearest_multiple(before, self.calls) and is_near(before, self.calls) and is_near(last, self.calls)
        )

    def per_call(self, event: str, name: str) -> int:
        """The hits of one call; 1 where they are not known, as the measurement will say why.

        Raises UsageError where calls of this ``name`` do not hit it, or not equally often.
        """
        if not self.passes:
            return 1
        last = self.passes[-1]
        each = nearest_multiple(last, self.calls)
        hint = "name another call: --call, or calls of yours: --workload FILE.c"
        if not each and self.is_repeated and is_near(last, self.calls):
            raise UsageError(f"the call {name} does not hit it", where=event, hint=hint)
        if not each or not self.is_repeated or not is_near(last, self.calls):
            hits = f"{last} times" if self.is_repeated else f"{', then '.join(map(str, self.passes))} times"
            what = f"{counted(self.calls, 'call')} of {name} hit it {hits}: not equally often"
            raise UsageError(f"{what}, so that a call does not tell what a hit costs", where=event, hint=hint)
        return each


def is_near(hits: int, calls: int) -> bool:
    """Whether so many hits are a multiple of the calls but for what interrupts may add, to them or to an idle pass."""
    return abs(hits - nearest_multiple(hits, calls) * calls) <= _MOST_INTERRUPTS


def is_event(name: str) -> bool:
    """Whether it is an event ``CATEGORY:NAME`` or a raw tracepoint ``NAME``, and no pattern."""
    return _EVENT.fullmatch(name) is not None


def event_hits(
    context: BuildContext,
    kernel: Kernel,
    machine: MachineSpec,
    event: str,
    calls: Calls,
    modules: Sequence[str] = (),
) -> EventHits:
    """How often ``calls`` hit an ``event``; cached by kernel, machine, event and calls if two passes agree.

    They need these ``modules`` of the kernel's own. Raises HostError, BuildError, GuestError.
    """
    fields = {**machine.model_dump(), "kernel_modules": bool(modules)}
    spec = GuestSpec(kernel=kernel.spec.argument, timing="instructions", **fields)
    artifacts = BootArtifacts(kernel, machine_for(context, kernel, spec), {}, loaded_files(kernel, modules))
    tool = bpf_tool(context, kernel.spec.arch)
    inputs: Mapping[str, object] = {
        **artifacts.keys,
        "cpu": repr(spec.cpu_model),
        "memory": spec.memory_mib,
        "event": event,
        "calls": [*calls.argv, str(_CALLS)],
        "program": None if calls.file is None else sha256_of(calls.file),
        "tool": sha256_of(tool),
        "passes": _PASSES,
    }

    def count() -> EventHits:
        context.say(f"counting how often the calls hit {event} on {kernel.spec.name}")
        with (
            ScratchFolder("orchestrator-hits-") as scratch,
            ready_guest(context, artifacts, scratch, "guest") as ready,
        ):
            return _hits(ready.guest, tool, event, calls)

    return kept_or_counted(context.cache, inputs, f"hits of {event} on {spec.cpu}", count)


def kept_or_counted(
    cache: Cache, inputs: Mapping[str, object], title: str, count: Callable[[], EventHits]
) -> EventHits:
    """What the cache has for these inputs, or else a count, which is kept if it is repeated."""
    kept = cache.get(_KIND, inputs)
    if kept is not None:
        return EventHits.stored_in(kept.path / _FILE)
    hits = count()
    if hits.is_repeated:
        cache.obtain(_KIND, inputs, title, lambda folder: (folder / _FILE).write_text(hits.model_dump_json()))
    return hits


def _hits(guest: Guest, tool: Path, event: str, calls: Calls) -> EventHits:
    bpf_program.bring(guest, tool)
    try:
        target = _target(guest, event)
        return repeated(lambda: _hits_of_calls(guest, target, calls))
    except (EvidenceError, UnsupportedError):  # the measurement says why
        return EventHits(calls=_CALLS, passes=())


def repeated(count: Callable[[], int]) -> EventHits:
    """Passes until two in a row give the same answer, at most ``_PASSES``."""
    hits = EventHits(calls=_CALLS, passes=())
    while not hits.is_repeated and len(hits.passes) < _PASSES:
        hits = EventHits(calls=_CALLS, passes=(*hits.passes, count()))
    return hits


def _hits_of_calls(guest: Guest, target: AttachTarget, calls: Calls) -> int:
    """The hits of calls beyond those of a process that makes none."""
    idle, idle_by_others = _counted(guest, target, calls, 0)
    hits, by_others = _counted(guest, target, calls, _CALLS)
    # Where nothing else hits it, the kernel's own threads do so for the calls.
    return max(0, hits - idle + (0 if idle_by_others else by_others))


def _target(guest: Guest, event: str) -> AttachTarget:
    if ":" not in event:
        return AttachTarget(probes()["bpf-raw-tracepoint"], event)
    return AttachTarget(probes()["bpf-tracepoint"], str(event_number(guest, event.replace(":", ".", 1))))


def _counted(guest: Guest, target: AttachTarget, calls: Calls, number: int) -> tuple[int, int]:
    """The hits of a process that makes so many calls, and of all others meanwhile."""
    calls.prepare(guest)
    program = bpf_program.attach(guest, "lab-witness", "witness", target)
    called = calls.call(guest, number, caller=None, time_limit=_TIME_LIMIT)
    hits = program.hits()
    program.detach()
    of_calls = sum(hits.get(pid, 0) for pid in called.pids)
    return of_calls, sum(hits.values()) - of_calls
