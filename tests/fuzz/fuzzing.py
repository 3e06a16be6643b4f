# SPDX-License-Identifier: GPL-2.0-only
"""Fuzzes one target in a process of its own, which atheris needs for itself."""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from orchestrator.process import Finished, run

from .corpus import corpus_of
from .target import Target

_TESTS = Path(__file__).parents[1]
_MEMORY_MIB = 1024
"""Memory that a process may take; the largest target takes 350 MiB, of which 200 are its program."""

TABLE_HEAD = """\
| reader | inputs | a second | MiB | finds |
| --- | ---: | ---: | ---: | --- |"""
"""Of a table in Markdown. ``str()`` of what was fuzzed is a row."""

_COUNT = re.compile(r"^stat::(\w+): +(\d+)$", re.MULTILINE)
_LAST_LINES = 25
_TIME_LIMIT = 7 * 86400.0
"""Seconds: more than a million inputs of any target need. What hangs is ended by libFuzzer after 20 minutes."""


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
        figures = " | ".join(f"{figure:,}" for figure in (self.inputs, self.per_second, self.memory_mib))
        return f"| `{self.target.name}` | {figures} | {'one' if self.problem else 'none'} |"


def fuzz(target: Target, runs: int, path: Path, *, seconds: int = 0) -> Fuzzed:
    """Feed a target with its corpus and ``runs`` inputs made of it, for at most ``seconds`` where that is not 0."""
    new = path / "new"
    new.mkdir(exist_ok=True)
    limits = [f"-runs={runs}", f"-max_total_time={seconds}", f"-max_len={target.longest}"]
    ended = _run(
        target, [*limits, "-print_final_stats=1", f"-artifact_prefix={path}/", str(new), str(corpus_of(target))]
    )
    counts = dict(_COUNT.findall(ended.stderr))
    inputs = int(counts.get("number_of_executed_units", 0))
    printed = [line for text in (ended.stdout, ended.stderr) for line in text.splitlines()[-_LAST_LINES:]]
    return Fuzzed(
        target=target,
        inputs=inputs,
        per_second=int(counts.get("average_exec_per_sec", 0)) or inputs,  # it says 0 of less than a second
        memory_mib=int(counts.get("peak_rss_mb", 0)),
        problem="" if ended.status == 0 else "\n".join(printed),
        found=path,
    )


def keep(fuzzed: Fuzzed) -> None:
    """Add the inputs that led to new code to the target's corpus: of those that lead to the same, the smallest."""
    # Without counters: how often a line was executed is nothing new.
    merged = _run(
        fuzzed.target, ["-merge=1", "-use_counters=0", str(corpus_of(fuzzed.target)), str(fuzzed.found / "new")]
    )
    if merged.status != 0:
        raise RuntimeError(merged.stderr)


def _run(target: Target, arguments: list[str]) -> Finished:
    argv = [sys.executable, "-m", "fuzz.under_atheris", target.name, f"-rss_limit_mb={_MEMORY_MIB}", *arguments]
    # libFuzzer ends without the process's own cleaning up.
    with tempfile.TemporaryDirectory(prefix="lab-fuzz-") as scratch:
        return run(argv, time_limit=_TIME_LIMIT, cwd=_TESTS, environment={"TMPDIR": scratch})
