# SPDX-License-Identifier: GPL-2.0-only
"""A BPF program of the lab's that counts the hits at a place by thread, beside programs whose runs the kernel counts.

Each of them must have run at every hit that the witness saw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.bpf_program import BpfProgram, Target, attach, keep_statistics
from orchestrator.probes.called import Called
from orchestrator.probes.evidence import MISSED_RETURNS

_NAME = "lab-witness"


class Witness:
    """Counts at ``target`` between ``begin`` and ``end``, and keeps what it has counted until it begins anew."""

    def __init__(self, guest: Guest, target: Target) -> None:
        self._guest, self._target = guest, target
        self._program: BpfProgram | None = None
        self._watched: Sequence[tuple[str, BpfProgram]] = ()
        self._runs: Sequence[int] = ()
        self._hits: Mapping[int, int] = {}

    @property
    def is_counting(self) -> bool:
        """Whether it is attached."""
        return self._program is not None

    def begin(self, watched: Sequence[tuple[str, BpfProgram]]) -> None:
        """Attach it, while the kernel counts the runs of programs; errors name them as they are named here."""
        keep_statistics(self._guest, on=True)
        self._watched = watched
        self._runs = [program.info().runs for _, program in watched]
        self._program = attach(self._guest, _NAME, "witness", self._target)

    def look(self) -> int:
        """Keep what was counted, and return the hits of all threads.

        Raises EvidenceError for a program that was skipped, or has run less often than the witness.
        """
        assert self._program is not None
        self._hits = self._program.hits()
        seen = sum(self._hits.values())
        for (name, program), before in zip(self._watched, self._runs, strict=True):
            info = program.info()
            if info.missed:
                raise EvidenceError(f"the kernel skipped {name} {info.missed} times")
            runs = info.runs - before
            if runs < seen and ("kretprobe" in name or self._target.kind.startswith("kretprobe")):
                missed = f"the kernel missed {seen - runs} of {seen} returns: {name} ran {runs} times"
                raise EvidenceError(missed, hint=MISSED_RETURNS)
            if runs < seen:
                raise EvidenceError(f"{name} ran {runs} times, and the witness beside it {seen} times")
        return seen

    def detach(self) -> None:
        """Take it off; the kernel goes on counting runs until ``end``."""
        assert self._program is not None
        self._program.detach()
        self._program = None

    def end(self) -> None:
        """Let the kernel count no more runs."""
        keep_statistics(self._guest, on=False)

    def counts(self, called: Called) -> tuple[int, int]:
        """The hits of the processes that made the calls, and those of others."""
        hits = sum(self._hits.get(pid, 0) for pid in called.pids)
        return hits, sum(self._hits.values()) - hits
