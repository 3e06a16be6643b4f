# SPDX-License-Identifier: GPL-2.0-only
"""How programs that make calls fail: they end, cannot time their calls, or use a resource up."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.benchmarks.calls.call_results import SUCCESS, CallOutcome, is_unexpected, named
from orchestrator.benchmarks.calls.sampling import WARM_UP_CALLS
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import CallResults

_USES_UP = "the call uses a resource up"
_CALLS_ENDED = re.compile(r"/\S+ (?:ended with status \d+|was ended by signal (?!9\b)\d+)")
"""The kernel ends a program by signal 9 where memory runs out."""


class DisturbedError(EvidenceError):
    """An interrupt, a page fault or another task disturbed each of two hundred batches."""


def checked_output(guest: Guest, argv: list[str], time_limit: float) -> str:
    """Run a program in the guest, and return what it prints.

    Raises UnsupportedError where the kernel has no such entry for system calls, DisturbedError where no batch was
    undisturbed, EvidenceError where the program fails otherwise.
    """
    result = guest.run(argv, time_limit=time_limit)
    if result.status == 0:
        return result.text
    message = result.stderr.decode("utf-8", errors="replace").strip()[:300]
    if "no system call entry" in message:
        raise UnsupportedError(message)
    # The guest's agent reports a signal as shells do: 128 plus its number.
    signal = result.status - 128
    end = f"was ended by signal {signal}" if signal > 0 else f"ended with status {result.status}"
    if "no batch without an interrupt" in message:
        raise DisturbedError(message)
    if message.startswith(f"{Path(argv[0]).name}: "):  # of the part that times the calls, not of the calls
        raise EvidenceError(message)
    raise EvidenceError(f"{argv[0]} {end}", detail=message.splitlines())


def is_of_failed_calls(reason: str) -> bool:
    """Whether a cell has failed because its calls did: they ended their program, or returned what is not expected."""
    first = reason.partition("\n")[0]
    return _CALLS_ENDED.fullmatch(first) is not None or is_unexpected(first)


def used_up(outcome: CallOutcome, alone: CallResults) -> EvidenceError:
    """The error for calls that use a resource up by their ``outcome``; ``alone`` are those of a process of its own."""
    results = alone if alone.stopped_succeeding else outcome.results
    succeeded = [named(value) for value, _ in results.values if value >= 0]
    change = f"from {succeeded[0] if len(succeeded) == 1 else SUCCESS} to {named(results.last)}"
    undo = "undo what each call does, in a workload() of your own"
    if not alone.stopped_succeeding:
        return EvidenceError(f"the call's result changed {change} while calls were timed: {_USES_UP}", hint=undo)
    calls = alone.before_failure
    room = calls - WARM_UP_CALLS
    return EvidenceError(
        f"the call's result changed {change} after {calls} calls of one process: {_USES_UP}",
        hint=f"{undo}; or make fewer calls: a process has {room} timed ones before the change" if room > 0 else undo,
    )
