# SPDX-License-Identifier: GPL-2.0-only
"""Fuzzes one target in a process of its own, which atheris needs for itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from .corpus import corpus_of
from .target import Target

_TESTS = Path(__file__).parents[1]
_MEMORY_MIB = 1024
"""Memory that a process may take; the largest target takes 350 MiB, of which 200 are its program."""

_COUNT = re.compile(r"^stat::(\w+): +(\d+)$", re.MULTILINE)
_LAST_LINES = 40


@dataclass(frozen=True)
class Fuzzed:
    """What a target was fed with. ``problem`` has the last lines of a process that has found something, else nothing.

    ``found`` is the folder with the inputs that led to new code, and with the one that is a find.
    """

    target: Target
    inputs: int
    per_second: int
    memory_mib: int
    problem: str
    found: Path

    def __str__(self) -> str:
        figures = f"{self.inputs} inputs, {self.per_second} a second, {self.memory_mib} MiB"
        return f"{self.target.name}: {figures}: {'a find' if self.problem else 'nothing found'}"


def fuzz(target: Target, runs: int, found: Path, *, seconds: int = 0) -> Fuzzed:
    """Feed a target with its corpus and ``runs`` inputs made of it, for at most ``seconds`` where that is not 0."""
    new = found / "new"
    new.mkdir(exist_ok=True)
    limits = [f"-runs={runs}", f"-max_total_time={seconds}", f"-max_len={target.longest}"]
    log = _run(
        target, [*limits, "-print_final_stats=1", f"-artifact_prefix={found}/", str(new), str(corpus_of(target))]
    )
    counts = dict(_COUNT.findall(log.text))
    return Fuzzed(
        target=target,
        inputs=int(counts.get("number_of_executed_units", 0)),
        per_second=int(counts.get("average_exec_per_sec", 0)),
        memory_mib=int(counts.get("peak_rss_mb", 0)),
        problem="" if log.status == 0 else "\n".join(log.text.splitlines()[-_LAST_LINES:]),
        found=found,
    )


def keep(fuzzed: Fuzzed) -> None:
    """Add the inputs that led to new code to the target's corpus: of those that lead to the same, the smallest."""
    # Without counters: how often a line was executed is nothing new.
    merged = _run(
        fuzzed.target, ["-merge=1", "-use_counters=0", str(corpus_of(fuzzed.target)), str(fuzzed.found / "new")]
    )
    if merged.status != 0:
        raise RuntimeError(merged.text)


@dataclass(frozen=True)
class _Log:
    status: int
    text: str


def _run(target: Target, arguments: list[str]) -> _Log:
    with tempfile.TemporaryDirectory(prefix="lab-fuzz-") as scratch, tempfile.TemporaryFile() as log:
        # libFuzzer ends without the process's own cleaning up.
        environment = {**os.environ, "TMPDIR": scratch}
        argv = [sys.executable, "-m", "fuzz.under_atheris", target.name, f"-rss_limit_mb={_MEMORY_MIB}", *arguments]
        done = subprocess.run(argv, cwd=_TESTS, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        log.seek(0)
        return _Log(done.returncode, log.read().decode(errors="replace"))
