# SPDX-License-Identifier: GPL-2.0-only
"""How often a call hits a tracepoint: a guest makes calls, and a BPF program of the lab's counts by process."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.compiler import bpf_tool
from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError, UnsupportedError, UsageError
from orchestrator.experiment.cell import MachineSpec
from orchestrator.files import ScratchFolder, sha256_of
from orchestrator.guest.guest import Guest
from orchestrator.plain_text import counted
from orchestrator.probes import bpf_program
from orchestrator.probes.bpf_program import AttachTarget
from orchestrator.probes.tracefs import event_number
from orchestrator.results.contract import Record
from orchestrator.run.benchmark_kind import BootArtifacts
from orchestrator.run.boot import ready_guest
from orchestrator.run.machines import Hardware, machine_for

_FILE = "hits.json"
_CALLS = 200
_MOST_INTERRUPTS = 20
"""Hits of a pass that interrupts may add: it takes a timer tick's period or two."""
_PASSES = 5
_TIME_LIMIT = 60.0
_EVENT = re.compile(r"(?:\w{1,64}:)?\w{1,64}")


class EventHits(Record):
    """How often ``calls`` calls hit an event; None where the kernel has no such event, or no BPF."""

    calls: int
    hits: int | None

    def per_call(self, event: str, name: str) -> int:
        """The hits of one call; 1 where they are not known, as the measurement will say why.

        Raises UsageError where calls of this ``name`` do not hit it, or not equally often.
        """
        if self.hits is None:
            return 1
        each = nearest(self.hits, self.calls)
        hint = "name another call: --call, or calls of yours: --workload FILE.c"
        if not each and self.hits <= _MOST_INTERRUPTS:
            raise UsageError(f"the call {name} does not hit it", where=event, hint=hint)
        if not each or not is_near(self.hits, self.calls):
            what = f"{counted(self.calls, 'call')} of {name} hit it {self.hits} times: not equally often"
            raise UsageError(f"{what}, so that a call does not tell what a hit costs", where=event, hint=hint)
        return each


def nearest(hits: int, calls: int) -> int:
    """How often each of the calls hits it, if not for some hits more or fewer."""
    return (2 * hits + calls) // (2 * calls)


def is_near(hits: int, calls: int) -> bool:
    """Whether so many hits are a multiple of the calls but for what interrupts may add, to them or to an idle pass."""
    return abs(hits - nearest(hits, calls) * calls) <= _MOST_INTERRUPTS


def is_event(name: str) -> bool:
    """Whether it is an event ``CATEGORY:NAME`` or a raw tracepoint ``NAME``, and no pattern."""
    return _EVENT.fullmatch(name) is not None


def event_hits(context: BuildContext, kernel: Kernel, machine: MachineSpec, event: str, calls: Calls) -> EventHits:
    """How often ``calls`` hit an ``event``; cached by kernel, machine, event and calls.

    Raises HostError, BuildError, GuestError.
    """
    hardware = Hardware(cpu(machine.cpu), machine.smp, machine.memory_mib, "instructions")
    artifacts = BootArtifacts(kernel, machine_for(context, kernel, hardware), {})
    tool = bpf_tool(context, kernel.spec.arch)
    inputs: Mapping[str, object] = {
        **artifacts.keys,
        "cpu": repr(hardware.cpu),
        "memory": hardware.memory_mib,
        "event": event,
        "calls": [*calls.argv, str(_CALLS)],
        "program": None if calls.file is None else sha256_of(calls.file),
        "tool": sha256_of(tool),
    }

    def count(folder: Path) -> None:
        context.say(f"counting how often the calls hit {event} on {kernel.spec.name}")
        with (
            ScratchFolder("orchestrator-hits-") as scratch,
            ready_guest(context, artifacts, scratch, "guest") as ready,
        ):
            hits = EventHits(calls=_CALLS, hits=_hits(ready.guest, tool, event, calls))
        (folder / _FILE).write_text(hits.model_dump_json())

    title = f"hits of {event} on {hardware.cpu.name}"
    return EventHits.stored_in(context.cache.obtain("event-hits", inputs, title, count).path / _FILE)


def _hits(guest: Guest, tool: Path, event: str, calls: Calls) -> int | None:
    bpf_program.bring(guest, tool)
    try:
        target = _target(guest, event)
        idle, others = _counted(guest, target, calls, 0)
    except (EvidenceError, UnsupportedError):  # the measurement says why
        return None
    found = 0
    for _ in range(_PASSES):
        hits, of_others = _counted(guest, target, calls, _CALLS)
        # Where nothing else hits it, the kernel's own threads do so for the calls.
        found = hits - idle + (0 if others else of_others)
        if is_near(found, _CALLS):
            break
    return max(0, found)


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
