# SPDX-License-Identifier: GPL-2.0-only
"""Are the runs of programs that are attached together counted, and compared with what QEMU has counted?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from orchestrator.errors import EvidenceError, HitSkipped
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes.attachment import Called
from orchestrator.probes.bpf_hits import UserBpfProgram
from orchestrator.probes.bpf_program import Attached, BpfProgram
from orchestrator.probes.runs_together import RunsTogether

AT, BYTES = 0x1000, 0x100
BEGIN, END = "kprobe/vfs_read", "kretprobe/vfs_read"
LINKS = (Attached(1, "kprobe", 0, 0, 1, 0, "vfs_read"), Attached(2, "kprobe", 0, 1, 1, 0, "vfs_read"))


class Programs:
    """A guest whose programs have these runs, and skips, by the kernel's count."""

    def __init__(self) -> None:
        self.runs, self.missed = [0, 0, 0], [0, 0, 0]

    def put(self, content: bytes, file: str) -> None:
        """The kernel's statistics are switched."""

    def get(self, file: str, **_: object) -> bytes:
        return b"0\n"

    def succeed(self, argv: Sequence[str]) -> CommandResult:
        folders = [int(word) for word in argv if word.isdigit()]
        said = (
            f"id={folder} jited={BYTES} code={AT * folder} runs={self.runs[folder - 1]} "
            f"missed={self.missed[folder - 1]} translated=64 verified=8\n"
            for folder in folders
        )
        return CommandResult(tuple(argv), 0, "".join(said).encode(), b"")


def programs(guest: Programs, *sections: str) -> Sequence[UserBpfProgram]:
    as_guest = cast("Guest", guest)
    return [
        UserBpfProgram(number, f"p{number}", section, BpfProgram(as_guest, str(number)))
        for number, section in enumerate(sections, start=1)
    ]


def counting(guest: Programs) -> RunsTogether:
    *attached, loaded = programs(guest, BEGIN, END, "kprobe")
    return RunsTogether(cast("Guest", guest), attached, LINKS, [loaded], ["spare"])


def passed(runs: RunsTogether, guest: Programs, calls: int, *each: int) -> tuple[int, int | None]:
    """A pass of calls in which the programs run so often."""
    runs.begin()
    assert runs.is_counting
    guest.runs = [before + now for before, now in zip(guest.runs, (*each, 0, 0, 0), strict=False)]
    runs.look()
    runs.detach()
    runs.end()
    assert not runs.is_counting
    return runs.counts(Called("program", calls, frozenset()))


def test_a_call_that_runs_a_program_is_a_hit() -> None:
    guest = Programs()
    runs = counting(guest)
    assert passed(runs, guest, 0, 7, 7) == (0, None)
    runs.learn({AT + 4: 100, AT + 8: 100, 2 * AT: 200, 3 * AT + 15: 100}, 100)
    assert passed(runs, guest, 1000, 1007, 2007) == (1000, None)
    assert [(each.name, each.runs, each.attached) for each in runs.program_runs()] == [
        ("p1", 1000, "bpf-kprobe vfs_read"),
        ("p2", 2000, "bpf-kretprobe vfs_read"),
        ("p3", 0, ""),
    ]
    assert runs.remarks() == []
    assert runs.facts() == {"bpf_not_attached": "not attached: p3 (kprobe) names no place, spare is optional"}


def test_programs_that_no_call_runs_are_named() -> None:
    guest = Programs()
    runs = counting(guest)
    runs.learn({AT: 100}, 100)
    assert passed(runs, guest, 1000, 1000) == (1000, None)
    assert runs.facts()["bpf_not_run"] == "attached, and not run by these calls: p2"


@pytest.mark.parametrize("executed", [{}, {AT: 100}])
def test_calls_that_run_nothing_are_an_error(executed: dict[int, int]) -> None:
    guest = Programs()
    runs = counting(guest)
    runs.learn(executed, 100)
    with pytest.raises(EvidenceError, match=r"1000 calls were made, and its programs ran 40 times\n|QEMU") as refused:
        passed(runs, guest, 1000, 40)
    assert executed or list(refused.value.detail) == [
        "attached: bpf-kprobe vfs_read",
        "attached: bpf-kretprobe vfs_read",
    ]


def test_runs_outside_of_the_timed_calls_are_no_hits() -> None:
    guest = Programs()
    runs = counting(guest)
    runs.learn({0x900000: 100}, 100)
    with pytest.raises(EvidenceError, match=r"programs ran 1000 times, none within what is timed\n"):
        passed(runs, guest, 1000, 1000)


def test_runs_of_other_tasks_are_told() -> None:
    guest = Programs()
    runs = counting(guest)
    runs.learn({AT: 100, 2 * AT: 100}, 100)
    assert passed(runs, guest, 1000, 2000, 1400) == (1000, None)
    assert runs.remarks() == ["1 of 2 runs of p1 a call are not timed", "other tasks run p2, too"]


def test_the_kernels_count_and_that_of_qemu_must_agree() -> None:
    guest = Programs()
    runs = counting(guest)
    runs.learn({AT: 200}, 100)
    what = r"p1 \(kprobe/vfs_read\) ran 1000 times in 1000 calls by the kernel's count, and QEMU has counted 2 a timed"
    with pytest.raises(EvidenceError, match=what):
        passed(runs, guest, 1000, 1000)


def test_each_pass_must_run_them_equally_often() -> None:
    guest = Programs()
    runs = counting(guest)
    passed(runs, guest, 1000, 1000)
    with pytest.raises(EvidenceError, match=r"ran 1 times a call in one pass, and 2 times in another$"):
        passed(runs, guest, 1000, 2000)


def test_a_run_that_the_kernel_skipped_is_counted_again() -> None:
    guest = Programs()
    runs = counting(guest)
    runs.begin()
    guest.missed[1] = 3
    runs.look()
    with pytest.raises(HitSkipped, match=r"skipped the BPF program p2 \(kretprobe/vfs_read\) 3 times$"):
        runs.counts(Called("program", 1000, frozenset()))


@pytest.mark.parametrize(
    ("section", "link", "complaint"),
    [
        (BEGIN, LINKS[1]._replace(number=1), "is attached as bpf-kretprobe, not as bpf-kprobe$"),
        (BEGIN, LINKS[1], "the kernel does not say that the BPF program p1 "),
        ("fexit/vfs_read", Attached(1, "trampoline", 24, 0, 1, 0, "vfs_read"), "as bpf-fentry, not as bpf-fexit$"),
    ],
)
def test_a_program_that_is_attached_otherwise_is_an_error(section: str, link: Attached, complaint: str) -> None:
    guest = Programs()
    with pytest.raises(EvidenceError, match=complaint):
        RunsTogether(cast("Guest", guest), programs(guest, section), [link])


def test_what_the_kernel_does_not_say_is_no_error() -> None:
    """Linux 6.1 does not say whether a link to many functions is at their returns."""
    guest = Programs()
    unsaid = Attached(1, "multi", 42, 255, 1, 0, "")
    RunsTogether(cast("Guest", guest), programs(guest, "kretprobe.multi/vfs_rea*"), [unsaid])
