# SPDX-License-Identifier: GPL-2.0-only
"""Does a witness fail programs that ran less often than it saw hits, and tell a process's hits from others?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import pytest

from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes import bpf_program as module
from orchestrator.probes.attachment import Called
from orchestrator.probes.bpf_program import BpfProgram, ProgramInfo, Target, Witness

HITS = {7: 100, 8: 3}


@dataclass
class Program:
    runs: int = 0
    missed: int = 0
    is_attached: bool = True

    def info(self) -> ProgramInfo:
        return ProgramInfo(jited=1, runs=self.runs, missed=self.missed)

    def hits(self) -> Mapping[int, int]:
        return HITS

    def detach(self) -> None:
        self.is_attached = False


class Switches:
    def __init__(self) -> None:
        self.put_there: list[bytes] = []

    def put(self, content: bytes, target: str) -> None:
        assert target.endswith("bpf_stats_enabled")
        self.put_there.append(content)


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Program:
    """The witness's own program."""
    program = Program()
    monkeypatch.setattr(module, "attach", lambda *_: program)
    return program


def beside(*programs: Program) -> tuple[Witness, Switches]:
    guest = Switches()
    witness = Witness(cast(Guest, guest), Target(probes()["bpf-kprobe"], "vfs_read"))
    # Two programs may have one name.
    witness.begin([("the BPF program f", cast(BpfProgram, program)) for program in programs])
    return witness, guest


def test_programs_that_ran_at_every_hit(own: Program) -> None:
    first, second = Program(runs=50), Program(runs=5)
    witness, guest = beside(first, second)
    first.runs, second.runs = 50 + 103, 5 + 104
    assert witness.is_counting
    assert witness.look() == 103
    witness.detach()
    assert (witness.is_counting, own.is_attached) == (False, False)
    witness.end()
    assert guest.put_there == [b"1", b"0"]
    assert witness.counts(Called("sysenter", 1, frozenset({7}))) == (100, 3)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("runs", "missed", "said"),
    [
        (102, 0, "the BPF program f ran 102 times, and the witness beside it 103 times"),
        (200, 4, "the kernel skipped the BPF program f 4 times"),
    ],
)
def test_programs_that_ran_less_often(runs: int, missed: int, said: str) -> None:
    lazy, diligent = Program(), Program()
    witness, _ = beside(lazy, diligent)
    lazy.runs, lazy.missed, diligent.runs = runs, missed, 1000
    with pytest.raises(EvidenceError, match=f"^{said}$"):
        witness.look()


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("at", "name"),
    [
        ("bpf-kretprobe", "the BPF program"),
        ("bpf-kretprobe-multi", "f"),
        ("bpf-kprobe", "the BPF program f (kretprobe/schedule)"),
    ],
)
def test_returns_that_were_missed_are_named(at: str, name: str) -> None:
    """Those of a user's own program, too, beside which the witness counts entries."""
    lazy = Program()
    witness = Witness(cast(Guest, Switches()), Target(probes()[at], "schedule"))
    witness.begin([(name, cast(BpfProgram, lazy))])
    lazy.runs = 3
    with pytest.raises(EvidenceError) as raised:
        witness.look()
    assert raised.value.what == f"the kernel missed 100 of 103 returns: {name} ran 3 times"
    assert "maxactive" in raised.value.hint
