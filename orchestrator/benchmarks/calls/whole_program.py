# SPDX-License-Identifier: GPL-2.0-only
"""Cost of one run of a user's static program, from start to end.

A run is longer than a timer tick's period, so it includes ticks and its samples scatter a little, on the exact clock
too: they are compared in the way of the wall clock's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.benchmarks.calls.call_programs import MOST_HITS, put_program
from orchestrator.benchmarks.calls.workload import Measurement
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.call_results import CallResults
from orchestrator.probes.called import Called

COUNTED_RUNS = 3
"""Runs of a counting pass, at most."""

PROGRAM = "/tmp/program"  # noqa: S108 - in the guest
_RUN = re.compile(r"run (\d{1,9}) tsc=(\d{1,18}) ns=(\d{1,18}) pid=(\d{1,9})")


@dataclass(frozen=True)
class WholeProgram:
    """A user's static program, run repeatedly; ``hits`` is how often one run enters the probe point."""

    file: Path
    arguments: Sequence[str]
    hits: int

    metric = "cost per run"

    @property
    def counted(self) -> int:
        """Runs of a counting pass: their events fit into a ring."""
        return max(1, min(COUNTED_RUNS, MOST_HITS // self.hits))

    def prepare(self, guest: Guest) -> None:
        """Copy the program into the guest."""
        put_program(guest, self.file, PROGRAM)

    def measure_one(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure one run, after a warm-up run."""
        _, (tsc, nanoseconds, _) = self._run(guest, 2, None, time_limit)
        return Measurement((float(tsc),), (float(nanoseconds),), "program", 1, 1, 0)

    def call(self, guest: Guest, calls: int, *, caller: str | None, time_limit: float) -> Called:
        """Make ``calls`` runs, untimed."""
        runs = self._run(guest, calls, caller, time_limit) if calls else []
        return Called("program", calls, frozenset(pid for _, _, pid in runs))

    def watch(self, guest: Guest, *, time_limit: float) -> Mapping[str, CallResults]:
        """Nothing: a program's exit status says whether it did what it should."""
        del guest, time_limit
        return {}

    def _run(self, guest: Guest, runs: int, caller: str | None, time_limit: float) -> list[tuple[int, int, int]]:
        caller_option = () if caller is None else ("-P", caller)
        argv = ["runbench", *caller_option, str(runs), PROGRAM, *self.arguments]
        result = guest.run(argv, time_limit=time_limit)
        if result.status != 0:
            messages = result.stderr.decode("utf-8", errors="replace").strip().splitlines()[-5:]
            raise EvidenceError(f"{self.file.name} did not run to its end", detail=messages)
        return parse_runs(result.text, runs)


def parse_runs(output: str, runs: int) -> list[tuple[int, int, int]]:
    """Each run's TSC units, nanoseconds and process; raises EvidenceError for anything but ``runs`` complete lines."""
    lines = output.splitlines()
    found = [_RUN.fullmatch(line) for line in lines]
    whole = [tuple(int(group) for group in match.groups()) for match in found if match]
    if [run[0] for run in whole] != list(range(runs)) or len(whole) != len(lines):
        raise EvidenceError("the output of the program's runner is not what was expected", detail=lines[:10])
    return [(tsc, nanoseconds, pid) for _, tsc, nanoseconds, pid in whole]
