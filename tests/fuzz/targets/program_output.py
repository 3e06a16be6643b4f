# SPDX-License-Identifier: GPL-2.0-only
"""What the lab's programs in a guest print: of calls, of unattended work, of whole systems."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from orchestrator.benchmarks.calls.call_results import parse_results
from orchestrator.benchmarks.calls.program_output import parse, parse_called, parse_watched
from orchestrator.benchmarks.calls.sampling import Sampling
from orchestrator.benchmarks.calls.whole_programs import parse_runs
from orchestrator.benchmarks.scaling.outputs import read_driver, read_events, read_load
from orchestrator.benchmarks.system.work import read_build, read_command, read_flood
from orchestrator.errors import EvidenceError

_SAMPLING = Sampling(calls=10, batch=5, repeats=2, untimed=10)
_PROBES = 1000
_SCALING = (read_driver, read_events, read_load)
_SYSTEM: tuple[Callable[[str], object], ...] = (
    lambda text: read_build(text, 2),
    lambda text: read_flood(text, 2, 100),
    lambda text: read_command(text, 2),
)


def read_call_output(data: bytes) -> None:
    """Timed, untimed and watched calls, and a user's whole program."""
    text = data.decode("utf-8", errors="replace")
    with suppress(EvidenceError):
        parse(text, _SAMPLING)
    with suppress(EvidenceError):
        parse_called(text, 10)
    with suppress(EvidenceError):
        parse_watched(text, 10)
    parse_runs(text, 2)


def read_call_results(data: bytes) -> None:
    """The line on what calls returned."""
    parse_results(data.decode("utf-8", errors="replace"), "timed", "int80")


def read_scaling_output(data: bytes) -> None:
    """The steps of the scripts that register thousands of kprobes."""
    text = data.decode("utf-8", errors="replace")
    for read in _SCALING:
        with suppress(EvidenceError):
            read(text, _PROBES)


def read_system_output(data: bytes) -> None:
    """Runs of whole programs: a kernel's build, pings, a user's command."""
    text = data.decode("utf-8", errors="replace")
    for read in _SYSTEM:
        with suppress(EvidenceError):
            read(text)
