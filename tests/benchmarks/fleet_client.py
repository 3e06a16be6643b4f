# SPDX-License-Identifier: GPL-2.0-only
"""A run's side of a fleet of stand-ins, in a process of its own: what it costs, and how busy its slots are.

Called with a JSON file of what to do; prints JSON. See ``test_fleet_scale``.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from fleet_stand_ins import Recorded, RecordedKind

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import Boot, plan
from orchestrator.files import ScratchFolder
from orchestrator.fleet import trust
from orchestrator.fleet.fleet_executor import fleet_executor
from orchestrator.fleet.key import read_key
from orchestrator.paths import cache_dir
from orchestrator.run.benchmark_kind import BootArtifacts, BootTask, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellBegan, CellRecorded, Event, GuestBooted
from orchestrator.run.boot_preparation import prepare
from orchestrator.run.executor import Job, JobEnded


class Listener:
    """Remembers when a worker was given up."""

    def __init__(self) -> None:
        self.lost: float | None = None
        self.admitted = 0

    def say(self, text: str) -> None:
        if "goes to another worker" in text:
            self.lost = self.lost or time.monotonic()
        self.admitted += "its counts equal this machine's" in text

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


def recorded(context: BuildContext, boot: Boot, artifacts: BootArtifacts) -> Recorded:
    """Do a boot here, twice, and record the second one: the first one saves the guest."""
    for _ in range(2):
        events: list[tuple[float, Event]] = []

        def take(event: Event, events: list[tuple[float, Event]] = events) -> None:
            events.append((time.monotonic(), event))

        with ScratchFolder("orchestrator-recorded-") as folder:
            task = BootTask(kinds().named(boot.kind), boot, boot.cells, folder / "boot1")
            begun = time.monotonic()
            run_boot(Session(task, artifacts, context, take))
    when = {event.cell: at for at, event in events if isinstance(event, CellBegan)}
    cells = tuple((at - when[e.record.id], e.record) for at, e in events if isinstance(e, CellRecorded))
    (at, booted), *_ = [(at, event) for at, event in events if isinstance(event, GuestBooted)]
    return Recorded(at - begun, booted, cells)


def main(wanted: dict[str, Any]) -> dict[str, float]:
    """Do the boots; what was measured."""
    context, key = BuildContext(Cache(cache_dir())), read_key(Path(wanted["key"]))
    (boot,) = plan(load_experiment(Path(wanted["experiment"]), kinds(), wanted["overrides"])).boots
    artifacts = prepare(context, kinds().named(boot.kind), boot)
    once = recorded(context, boot, artifacts)
    draw = random.Random(1)
    # The stand-ins report nothing of a calibration, and so does this machine.
    calibration = Job(BootTask(kinds().named(boot.kind), boot, (), Path("calibration")), artifacts)
    cast(Any, trust).calibration_job = lambda *arguments: calibration
    cast(Any, trust).calibrated_here = lambda *arguments: {}
    cast(Any, trust).measured_here = lambda *arguments: []
    listener = Listener()
    jobs = _jobs(boot, artifacts, once, wanted["boots"], wanted["mean"] / once.seconds, draw)
    work = sum(cast(RecordedKind, job.task.kind).recorded.seconds for job in jobs)
    with fleet_executor(wanted["address"], key, kinds(), context, cast(Any, listener)) as executor:
        for job in jobs:
            executor.submit(job)
        return _watched(cast(Any, executor), listener, work, wanted, len(boot.cells))


def _jobs(
    boot: Boot, artifacts: BootArtifacts, once: Recorded, count: int, factor: float, draw: random.Random
) -> Sequence[Job]:
    """Boots of different lengths, with the given factor on the average."""
    jobs = []
    for number in range(1, count + 1):
        kind = RecordedKind(once.stretched(factor * draw.uniform(0.2, 1.8)))
        jobs.append(Job(BootTask(kind, boot, boot.cells, Path(f"/nowhere/boot{number}")), artifacts))
    return jobs


def _watched(executor: Any, listener: Listener, work: float, wanted: dict[str, Any], cells: int) -> dict[str, float]:
    ended, outcomes, killed = 0, 0, 0.0
    begun = warm = 0.0
    half = 0
    for _, event in executor.events():
        if not begun:
            begun = time.monotonic()
            before = resource.getrusage(resource.RUSAGE_SELF)
        outcomes += isinstance(event, CellRecorded) and event.record.status == "ok"
        ended += isinstance(event, JobEnded)
        if ended * 4 >= wanted["boots"] and not killed:
            killed, warm = time.monotonic(), _resident()
            os.kill(wanted["victim"], signal.SIGKILL)
        if ended * 2 >= wanted["boots"] and not half:
            half = _resident()
    elapsed = time.monotonic() - begun
    spent = resource.getrusage(resource.RUSAGE_SELF)
    cpu = spent.ru_utime + spent.ru_stime - before.ru_utime - before.ru_stime
    return {
        "boots": ended,
        "outcomes": outcomes,
        "cells": wanted["boots"] * cells,
        "elapsed": elapsed,
        "work": work,
        "busy": work / (elapsed * wanted["workers"]),
        "cpu": cpu,
        "noticed": (listener.lost or float("nan")) - killed,
        "admitted": listener.admitted,
        "resident_quarter": warm,
        "resident_half": half,
        "resident_end": _resident(),
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    print(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
