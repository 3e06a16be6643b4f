# SPDX-License-Identifier: GPL-2.0-only
"""Instructions in a test's guest: counts of calls and their symbols, on the exact clock."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.call_results import always_failing, summary
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.errors import EvidenceError, UsageError
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.counted.counter import Counter
from orchestrator.pytest_plugin.grown_symbols import by_symbol
from orchestrator.run.guest_checks import check_clocksource

_REPEATS = 4
LIMIT = 600.0
"""Host seconds for the counts of a call or a command."""
_CLOCKSOURCE_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_SETTLING_LIMIT = 180.0


@dataclass(frozen=True)
class CallInstructions:
    """Instructions of one call, and their symbols: None if these cannot be measured and proved.

    ``failing`` are the system calls that always failed, with what they returned.
    """

    instructions: float
    symbols: Callable[[], Mapping[str, float] | None] = lambda: None
    failing: Sequence[str] = ()


def settle(guest: Guest) -> None:
    """Wait for the kernel's final clocksource, as the kernel patches its clock's code for it.

    Raises UsageError for a guest that is not on the exact clock.
    """
    if guest.machine.timing != "instructions":
        raise UsageError("instructions are counted on the exact clock", hint="guest(timing='instructions')")
    guest.wait_until_succeeds(["grep", "-qx", "tsc", _CLOCKSOURCE_FILE], time_limit=_SETTLING_LIMIT)


def count_calls(guest: Guest, kernel: Kernel, calls: Calls) -> CallInstructions:
    """Count calls in repetitions. Raises EvidenceError if they vary, UsageError off the exact clock."""
    settle(guest)
    calls.prepare(guest)
    ticks = int(kernel.config["CONFIG_HZ"])
    measured = calls.measure_exact(guest, repeats=_REPEATS, ticks_per_second=ticks, time_limit=LIMIT)
    check_clocksource(guest)
    if not measured.samples:
        raise EvidenceError("nothing was counted")
    if measured.varies:
        counts = measured.costs or measured.samples
        raise EvidenceError(
            f"calls vary, and take {min(counts):.10g} to {max(counts):.10g} instructions: there is no exact count"
        )
    return CallInstructions(
        measured.samples[0], lambda: _symbols(guest, calls, measured), _failing(guest, calls, measured)
    )


def _failing(guest: Guest, calls: Calls, measured: Measurement) -> Sequence[str]:
    if measured.outcome is not None:
        results = measured.outcome.results
        return [summary(results)] if results.failed == results.observed and calls.expected is None else []
    try:
        watched = calls.watch(guest, time_limit=LIMIT)
    except EvidenceError:
        if calls.expected is not None:
            raise
        return []
    return always_failing(watched) if calls.expected is None else []


def _symbols(guest: Guest, calls: Calls, measured: Measurement) -> Mapping[str, float] | None:
    """Instructions of the calls by symbol, in a repetition; None if unknown, or if the repetition differs."""
    if guest.machine.counter is None:
        return None
    with contextlib.suppress(EvidenceError):
        counter = Counter(guest, Symbols.of(guest))
        mark = counter.mark()
        marked = calls.measure_marked(guest, measured, time_limit=LIMIT)
        profile = counter.profile(mark, marked.timed, cell="call", calls=marked.calls, program=calls.program)
        if profile.executed == marked.calls * measured.samples[0]:
            return by_symbol(profile)
    return None
