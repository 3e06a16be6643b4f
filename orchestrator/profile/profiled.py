# SPDX-License-Identifier: GPL-2.0-only
"""A cell's profile from a guest that counts: what any kind of benchmark that has profiles uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.arch import INT3
from orchestrator.artifacts.modules import Module
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import Symbols
from orchestrator.profile import counts
from orchestrator.profile.places import code_of
from orchestrator.results.contract import ProfileEvidence, valid_result
from orchestrator.results.stored_profile import CellProfile, write_profile


@dataclass(frozen=True)
class Counter:
    """A guest whose QEMU has the counting plugin.

    ``symbols`` were read when the guest was ready; ``module`` is what was loaded since.
    """

    guest: Guest
    symbols: Symbols
    module: Module | None = None

    def mark(self) -> int:
        """How much the plugin has written so far. Raises EvidenceError where this guest has none."""
        try:
            return self.guest.counts_file.stat().st_size
        except OSError as error:
            why = f"QEMU counts no instructions here: {error.strerror}"
            raise EvidenceError(why, where=str(self.guest.counts_file)) from None

    def profile(self, mark: int, timed: counts.Timed, *, cell: str, calls: int, program: str) -> CellProfile:
        """The profile of a sample of ``calls`` calls that a program made since the ``mark``, for a ``cell``.

        Raises EvidenceError unless the plugin counted what the clock did.
        """
        counter = self.guest.machine.counter
        assert counter is not None
        regions = counts.read_regions(self.guest.counts_file, mark)
        sample = counts.sample_of(regions, timed)
        cpu = counter.caches
        with valid_result():
            missed = counts.CacheMisses() if cpu is None else counts.cache_misses(regions, timed, sample, cpu)
        places = code_of(self.guest, self.symbols, self.module, program)
        return places.profile(sample, missed, counter, cell=cell, calls=calls, unit="call")

    def profile_rounds(self, mark: int, timed: Sequence[tuple[int, int]], *, cell: str, rounds: int) -> CellProfile:
        """The profile of ``rounds`` rounds of a loop of the module's, for a ``cell``.

        Since the ``mark`` they have run several times, and after each time twice as many: ``timed`` is what the clock
        says of both. Raises EvidenceError unless the plugin counted the same, and each time the same instructions.
        """
        sample = counts.rounds_of(counts.read_regions(self.guest.counts_file, mark), timed)
        places = code_of(self.guest, self.symbols, self.module, "user space")
        counter = self.guest.machine.counter
        assert counter is not None
        return places.profile(sample, counts.CacheMisses(), counter, cell=cell, calls=rounds, unit="round")


def stored(profile: CellProfile, file: Path, work: counts.CountedWork | None = None) -> ProfileEvidence:
    """Write a profile to its file; what proves it, of ``work`` that was timed as a whole its bounds too.

    Raises HostError when the disk is full.
    """
    return ProfileEvidence(
        sha256=write_profile(profile, file),
        calls=profile.calls,
        instructions=profile.executed,
        int3=sum(one.executed for one in profile.instructions if one.code == f"{INT3:02x}"),
        repetitions=profile.repetitions if work is None else None,
        ticks=None if work is None else work.ticks,
        faults=0 if work is None else work.faults,
        halts=0 if work is None else work.halts,
    )
