# SPDX-License-Identifier: GPL-2.0-only
"""The witness: a BPF program of the lab's that counts a place's hits by process, beside programs under test.

The kernel counts the runs of those; each must have run at every hit of the witness.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.errors import EvidenceError, HitSkipped
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Called
from orchestrator.probes.bpf_program import AttachTarget, BpfProgram, ProgramInfo, attach, keep_statistics
from orchestrator.probes.evidence import MISSED_RETURNS


class Witness:
    """Counts at ``target`` between ``begin`` and ``end``, and keeps its counts until it begins anew.

    ``name`` tells several of one guest apart.
    """

    def __init__(self, guest: Guest, target: AttachTarget, name: str = "lab-witness") -> None:
        self._guest, self._target, self._name = guest, target, name
        self._may_miss = target.kind.program is not None and target.kind.program.entries is not None
        self._program: BpfProgram | None = None
        self._watched: Sequence[tuple[str, BpfProgram]] = ()
        self._before: Sequence[ProgramInfo] = ()
        self._hits: Mapping[int, int] = {}
        self._skipped: str | None = None

    @property
    def is_counting(self) -> bool:
        return self._program is not None

    def begin(self, watched: Sequence[tuple[str, BpfProgram]]) -> None:
        """Attach it, and count the runs of ``watched`` programs, whose names here are for errors."""
        keep_statistics(self._guest, on=True)
        self._watched, self._skipped = watched, None
        self._before = [program.info() for _, program in watched]
        self._program = attach(self._guest, self._name, "witness", self._target)

    def look(self) -> int:
        """Store the counts, and return the hits at which the programs ran: 0 where the kernel skipped one of them.

        Raises EvidenceError for a program that ran less often.
        """
        assert self._program is not None
        self._hits = self._program.hits()
        seen = sum(self._hits.values())
        for (name, program), before in zip(self._watched, self._before, strict=True):
            info = program.info()
            if info.missed != before.missed:
                self._skipped = f"the kernel skipped {name} {info.missed - before.missed} times"
                continue
            runs = info.runs - before.runs
            if runs < seen and (self._may_miss or "kretprobe" in name):
                missed = f"the kernel missed {seen - runs} of {seen} returns: {name} ran {runs} times"
                raise EvidenceError(missed, hint=MISSED_RETURNS)
            if runs < seen:
                raise EvidenceError(f"{name} ran {runs} times, and the witness beside it {seen} times")
        return 0 if self._skipped else seen

    @property
    def seen(self) -> int:
        """Hits of all threads."""
        return sum(self._hits.values())

    def detach(self) -> None:
        assert self._program is not None
        self._program.detach()
        self._program = None

    def end(self) -> None:
        keep_statistics(self._guest, on=False)

    def counts(self, called: Called) -> tuple[int, int]:
        """The hits of the calls, and of others. Raises HitSkipped where the kernel skipped one."""
        if self._skipped is not None:
            raise HitSkipped(self._skipped)
        hits = sum(self._hits.get(pid, 0) for pid in called.pids)
        return hits, self.seen - hits
