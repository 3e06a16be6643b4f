# SPDX-License-Identifier: GPL-2.0-only
"""gtodbench: what one gettimeofday system call costs, in exact instructions or in the guest's nanoseconds.

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

_NANOSECONDS_PER_SECOND = 1_000_000_000
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
_CALLED = re.compile(
    rf"called calls={_NUMBER} pid={_NUMBER} tv=(0x[0-9a-f]{{1,16}}) tz=(0x[0-9a-f]{{1,16}}) number={_NUMBER}"
)


class NoSuchEntryError(LabError):
    """The guest's CPU or kernel has not the system call entry that was asked for."""


@dataclass(frozen=True)
class Measurement:
    """Samples per call, the entry they used, and the batches they are made of.

    ``samples`` are in units of the guest's TSC, which are instructions on the exact clock; ``nanoseconds`` are the same
    by the guest's clock. ``disturbed`` counts the batches that were thrown away and repeated.
    """

    samples: tuple[float, ...]
    nanoseconds: tuple[float, ...]
    entry: str
    calls: int
    batches: int
    disturbed: int


def measure_exact(
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
    return dataclasses.replace(measured, samples=measured.samples[:repeats], nanoseconds=measured.nanoseconds[:repeats])


def measure_wall(guest: Guest, *, entry: str, calls: int, ticks_per_second: int, time_limit: float) -> Measurement:
    """Measure one sample of ``calls`` calls by the guest's clock, in batches that fit between two timer ticks."""
    sounding = _run(guest, entry, _SOUNDING_CALLS, _SOUNDING_CALLS, 1, time_limit)
    between_ticks = _NANOSECONDS_PER_SECOND / ticks_per_second
    batch = int(between_ticks * _SHARE_OF_A_TICK / max(1.0, sounding.nanoseconds[0]))
    return _run(guest, entry, calls, min(max(1, batch), calls), 1, time_limit)


@dataclass(frozen=True)
class Called:
    """Calls that were made without timing them: how many, by which process, to which system call number, with what.

    ``time_value`` and ``time_zone`` are the addresses that every call passed.
    """

    entry: str
    calls: int
    pid: int
    time_value: int
    time_zone: int
    number: int


def call(guest: Guest, *, entry: str, calls: int, time_limit: float) -> Called:
    """Make exactly ``calls`` calls, untimed."""
    return parse_called(_checked(guest, [_PROGRAM, "-e", entry, "-c", str(calls)], time_limit), calls)


def parse_called(output: str, calls: int) -> Called:
    """What the program prints after calls that it did not time; raises EvidenceError for anything else."""
    lines = output.splitlines()
    entry = _ENTRY.fullmatch(lines[0]) if lines else None
    called = _CALLED.fullmatch(lines[1]) if len(lines) == 2 else None
    if entry is None or called is None or int(called[1]) != calls:
        raise EvidenceError("gtodbench's output is not what was expected", detail=lines[:10])
    return Called(
        entry=entry[1],
        calls=calls,
        pid=int(called[2]),
        time_value=int(called[3], 16),
        time_zone=int(called[4], 16),
        number=int(called[5]),
    )


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
        nanoseconds=tuple((ns - batches * int(empty[2])) / calls for _, _, batches, _, ns, _ in samples),
        entry=entry[1],
        calls=calls,
        batches=sum(s[2] for s in samples),
        disturbed=sum(s[5] for s in samples),
    )
