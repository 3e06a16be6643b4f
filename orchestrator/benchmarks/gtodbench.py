# SPDX-License-Identifier: GPL-2.0-only
"""gtodbench: what one gettimeofday system call costs, in exact instructions.

The program (``images/guest/gtodbench.c``) makes the batches and throws away those that an interrupt fell into; here
they are sized, and what it prints is checked and turned into samples.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass

from orchestrator.errors import EvidenceError, LabError
from orchestrator.guest.guest import Guest

INSTRUCTIONS_PER_SECOND = 1_000_000_000
"""Of guest time under ``-icount shift=0``; the guest's TSC counts instructions then."""

_PROGRAM = "gtodbench"
_SOUNDING_CALLS = 50
_SHARE_OF_A_TICK = 0.6
"""How much of the time between two ticks a batch may fill: it begins a little after a tick."""

_NUMBER = r"(\d{1,18})"
_ENTRY = re.compile(r"entry (int80|sysenter|syscall)")
_EMPTY = re.compile(rf"empty tsc={_NUMBER} ns={_NUMBER}")
_SAMPLE = re.compile(
    rf"sample {_NUMBER} calls={_NUMBER} batches={_NUMBER} tsc={_NUMBER} ns={_NUMBER} disturbed={_NUMBER}"
)


class NoSuchEntryError(LabError):
    """The guest's CPU or kernel has not the system call entry that was asked for."""


@dataclass(frozen=True)
class Measurement:
    """Samples in instructions per call, the entry they used, and the batches they are made of.

    ``disturbed`` counts the batches that were thrown away and repeated.
    """

    samples: tuple[float, ...]
    entry: str
    calls: int
    batches: int
    disturbed: int


def measure(
    guest: Guest, *, entry: str, calls: int, repeats: int, ticks_per_second: int, time_limit: float
) -> Measurement:
    """Measure ``repeats`` samples of ``calls`` calls, in batches that fit between two timer ticks.

    Raises EvidenceError when samples of one boot differ: on the exact clock they cannot.
    """
    sounding = _run(guest, entry, _SOUNDING_CALLS, _SOUNDING_CALLS, 1, time_limit)
    between_ticks = INSTRUCTIONS_PER_SECOND / ticks_per_second
    batch = int(between_ticks * _SHARE_OF_A_TICK / max(1.0, sounding.samples[0]))
    if batch < 1:
        raise EvidenceError(f"one call takes {sounding.samples[0]:g} instructions: more than fit between two ticks")
    # One sample alone would agree with itself.
    measured = _run(guest, entry, calls, min(batch, calls), max(2, repeats), time_limit)
    if len(set(measured.samples)) != 1:
        raise EvidenceError(f"samples of one boot differ: {', '.join(f'{s:.10g}' for s in measured.samples)}")
    return dataclasses.replace(measured, samples=measured.samples[:repeats])


def call(guest: Guest, *, entry: str, calls: int, time_limit: float) -> None:
    """Make exactly ``calls`` calls, untimed."""
    _checked(guest, [_PROGRAM, "-e", entry, "-c", str(calls)], time_limit)


def _run(guest: Guest, entry: str, calls: int, batch: int, repeats: int, time_limit: float) -> Measurement:
    argv = [_PROGRAM, "-e", entry, "-n", str(calls), "-b", str(batch), "-r", str(repeats)]
    return parse(_checked(guest, argv, time_limit), calls, repeats)


def _checked(guest: Guest, argv: list[str], time_limit: float) -> str:
    result = guest.run(argv, time_limit=time_limit)
    if result.status != 0:
        said = result.stderr.decode("utf-8", errors="replace").strip()[:300]
        kind = NoSuchEntryError if "no system call entry" in said else EvidenceError
        raise kind(said or f"{_PROGRAM} ended with status {result.status}")
    return result.text


def parse(output: str, calls: int, repeats: int) -> Measurement:
    """Turn the program's output into a measurement; raises EvidenceError for anything but a whole, right answer."""
    lines = output.splitlines()
    entry = _ENTRY.fullmatch(lines[0]) if lines else None
    empty = _EMPTY.fullmatch(lines[1]) if len(lines) > 1 else None
    found = [_SAMPLE.fullmatch(line) for line in lines[2:]]
    samples = [tuple(int(group) for group in match.groups()) for match in found if match]
    fixed = int(empty[1]) if empty else 0
    right = [s[0] == number and s[1] == calls and s[2] > 0 and s[3] > s[2] * fixed for number, s in enumerate(samples)]
    if entry is None or empty is None or len(samples) != len(found) or len(samples) != repeats or not all(right):
        raise EvidenceError("gtodbench's output is not what was expected", detail=lines[:10])
    return Measurement(
        samples=tuple((tsc - batches * fixed) / calls for _, _, batches, tsc, _, _ in samples),
        entry=entry[1],
        calls=calls,
        batches=sum(s[2] for s in samples),
        disturbed=sum(s[5] for s in samples),
    )
