# SPDX-License-Identifier: GPL-2.0-only
"""The interface of a workload: a program in the guest that enters the kernel repeatedly and can be timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from orchestrator.benchmarks.calls.outcome import Outcome
from orchestrator.guest.guest import Guest
from orchestrator.probes.call_results import CallResults
from orchestrator.probes.called import Called
from orchestrator.profile.sample import Timed


@dataclass(frozen=True)
class Measurement:
    """Samples per call, the entry they used, and the batches they are made of.

    ``samples`` are in units of the guest's TSC, which are instructions on the exact clock; ``nanoseconds`` are the same
    by the guest's clock. ``disturbed`` counts the batches that were discarded and repeated. ``number`` and ``outcome``
    are of system calls; of a user's function or program only the exit status is known, which is 0. ``batch`` is the
    calls of a batch, at most; ``empty`` the TSC units of an empty one, and ``ticks`` those of each sample behind its
    number of batches, with nothing subtracted. ``is_uniform`` where one call costs what one of many does. ``warming``
    calls preceded each batch and are not in it.
    """

    samples: tuple[float, ...]
    nanoseconds: tuple[float, ...]
    entry: str
    calls: int
    batches: int
    disturbed: int
    number: int | None = None
    outcome: Outcome | None = None
    batch: int = 1
    empty: int = 0
    ticks: tuple[tuple[int, int], ...] = ()
    is_uniform: bool = False
    warming: int = 0

    @property
    def scatter(self) -> float:
        """How far samples are apart, in their unit: 0 where all calls cost the same on the exact clock."""
        return max(self.samples) - min(self.samples) if self.samples else 0.0


def together(ones: Sequence[Measurement]) -> Measurement:
    """Samples that were measured one by one, of the same calls. What the calls returned is of the last."""
    return replace(
        ones[-1],
        samples=tuple(sample for one in ones for sample in one.samples),
        nanoseconds=tuple(time for one in ones for time in one.nanoseconds),
        batches=sum(one.batches for one in ones),
        disturbed=sum(one.disturbed for one in ones),
        ticks=tuple(ticks for one in ones for ticks in one.ticks),
    )


@dataclass(frozen=True)
class MarkedSamples:
    """What the clock of ``program`` said in the batches that it marked; each sample is of ``calls`` calls."""

    program: str
    calls: int
    timed: Timed


class Workload(Protocol):
    """Calls to measure in a guest.

    Every method raises EvidenceError for output that is not what was expected, and for calls that return something else
    than the experiment requires.

    ``counted``: calls of a counting pass. ``hits``: how often each call enters the probe point. ``metric``: what a
    sample is. ``time_limit`` is in seconds of the host's time.
    """

    @property
    def counted(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def metric(self) -> str: ...

    def prepare(self, guest: Guest) -> None:
        """Copy the workload's files into the guest."""

    def measure_one(self, guest: Guest, *, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure one sample, which may scatter."""

    def call(self, guest: Guest, calls: int, *, caller: str | None, time_limit: float) -> Called:
        """Make ``calls`` calls, untimed. Their process writes its process id to the guest's file ``caller``."""

    def watch(self, guest: Guest, *, time_limit: float) -> Mapping[str, CallResults]:
        """What the system calls return that the workload makes of its own accord, by their names, if that is known."""


@runtime_checkable
class ExactWorkload(Workload, Protocol):
    """Calls whose samples of one boot are equal on the exact clock, unless single calls are shown to differ."""

    def measure_exact(self, guest: Guest, *, repeats: int, ticks_per_second: int, time_limit: float) -> Measurement:
        """Measure ``repeats`` samples; raises EvidenceError when they differ and single calls do not."""

    def renewed(self, renew: Callable[[], None]) -> ExactWorkload:
        """The same calls, with something that is done before each sample."""

    def measure_cheaper(self, guest: Guest, dearer: Measurement, *, time_limit: float) -> Sequence[float]:
        """Measure two samples where calls cost no more than when ``dearer`` was measured."""

    def measure_marked(self, guest: Guest, measured: Measurement, *, time_limit: float) -> MarkedSamples:
        """Measure two samples again as of ``measured``, marked for QEMU's counting plugin."""
