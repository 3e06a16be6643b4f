# SPDX-License-Identifier: GPL-2.0-only
"""Whole programs as what is measured: they are run repeatedly, and each run is timed or counted."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.benchmarks.calls.call_programs import MOST_HITS, Calls
from orchestrator.benchmarks.calls.copied_programs import PROGRAM, put_program
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Called, CallResults

COUNTED_RUNS = 3
"""Most runs of a counting pass."""
_COLD_RUNS = 2
"""Runs before those that QEMU counts: the first ones read files and grow the kernel's caches."""

_RUN = re.compile(r"run (\d{1,9}) tsc=(\d{1,18}) ns=(\d{1,18}) pid=(\d{1,9})")


@dataclass(frozen=True)
class WholeProgram:
    """A program that is run repeatedly; ``hits`` is how often one run enters the probe point.

    ``argv`` names a program of the guest, or ``PROGRAM`` for the user's ``file``. A run is longer than a timer tick's
    period. Its samples include ticks and scatter a little on the exact clock, too, so they are compared like those of
    the wall clock. Where ``is_counted``, QEMU counts the instructions of each run.
    """

    file: Path | None
    argv: Sequence[str]
    hits: int
    is_counted: bool = False

    @property
    def counted(self) -> int:
        """Runs of a counting pass, whose events fit into a ring."""
        return max(1, min(COUNTED_RUNS, MOST_HITS // self.hits))

    def prepare(self, guest: Guest) -> None:
        if self.file is not None:
            put_program(guest, self.file, PROGRAM)

    def measure_counted(
        self, guest: Guest, runs: int, *, caller: str | None, time_limit: float, cold: int = _COLD_RUNS
    ) -> Measurement:
        """The clock's ticks of runs that QEMU counts, after ``cold`` ones that it does not."""
        counted_runs = self._run(guest, cold + runs, caller, time_limit, counted=runs)[cold:]
        ticks, nanoseconds = (tuple(float(run[at]) for run in counted_runs) for at in (0, 1))
        return Measurement(ticks, nanoseconds, "program", 1, runs, 0)

    def measure_one(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        _, (tsc, nanoseconds, _) = self._run(guest, 2, None, time_limit)
        return Measurement((float(tsc),), (float(nanoseconds),), "program", 1, 1, 0)

    def call(self, guest: Guest, calls: int, *, caller: str | None, time_limit: float) -> Called:
        runs = self._run(guest, calls, caller, time_limit) if calls else []
        return Called("program", calls, frozenset(pid for _, _, pid in runs))

    def watch(self, guest: Guest, *, time_limit: float) -> Mapping[str, CallResults]:
        """Nothing: a program's exit status tells whether it succeeded."""
        return {}

    def _run(
        self, guest: Guest, runs: int, caller: str | None, time_limit: float, counted: int = 0
    ) -> list[tuple[int, int, int]]:
        options = (*(() if caller is None else ("-P", caller)), *(("-m", str(counted)) if counted else ()))
        result = guest.run(["runbench", *options, str(runs), *self.argv], time_limit=time_limit)
        if result.status != 0:
            messages = result.stderr.decode("utf-8", errors="replace").strip().splitlines()[-5:]
            name = self.argv[-1] if self.file is None else self.file.name
            raise EvidenceError(f"{name} did not run to its end", detail=messages)
        return parse_runs(result.text, runs)


Workload = Calls | WholeProgram


def parse_runs(output: str, runs: int) -> list[tuple[int, int, int]]:
    """Each run's TSC units, nanoseconds and process; raises EvidenceError for anything but ``runs`` complete lines."""
    lines = output.splitlines()
    matches = [_RUN.fullmatch(line) for line in lines]
    whole = [tuple(int(group) for group in match.groups()) for match in matches if match]
    if [run[0] for run in whole] != list(range(runs)) or len(whole) != len(lines):
        raise EvidenceError("the output of the program's runner is not what was expected", detail=lines[:10])
    return [(tsc, nanoseconds, pid) for _, tsc, nanoseconds, pid in whole]
