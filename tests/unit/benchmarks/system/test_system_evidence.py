# SPDX-License-Identifier: GPL-2.0-only
"""Is a recorder believed only where its places are armed, and a workload only where it did what the baseline did?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import pytest
from record_builders import recorded_build

from orchestrator.benchmarks.system import work
from orchestrator.benchmarks.system.kind import check_same_work
from orchestrator.benchmarks.system.measurement import Recorded, check_armed, read_recorded
from orchestrator.benchmarks.system.work import warm_reports
from orchestrator.catalog.probes import recorder_kinds
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.recorder import MECHANISMS, parse_report

REPORT = b"""\
recorder format=1 mechanism=kprobe state=recording restored=-
rings cpus=1 slots=4096 event-size=64 written=1003 overwritten=0
event file_read recorded=1003 missed=0
place file_read vfs_read recorded=1003 missed=0
site vfs_read c1176db0 original=5589e583ec live=cc89e583ec
end events=1 places=1 sites=1
"""


def test_every_kind_is_one_that_the_recorder_has() -> None:
    assert {kind.module for kind in recorder_kinds().values()} == set(MECHANISMS)


def test_an_armed_recorder_is_believed() -> None:
    check_armed(recorder_kinds()["kprobe"], parse_report(REPORT))


@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        ("djprobe", (b"", b""), "the recorder was a kprobe, recording, and not a djprobe"),
        ("kprobe", (b"live=cc", b"live=55"), "not armed as int3"),
        ("kprobe", (b"recording restored=-", b"stopped restored=no"), "a kprobe, stopped"),
    ],
)
def test_other_recorders_are_refused(kind: str, change: tuple[bytes, bytes], complaint: str) -> None:
    with pytest.raises(EvidenceError, match=complaint):
        check_armed(recorder_kinds()[kind], parse_report(REPORT.replace(*change)))


STOPPED = REPORT.replace(b"recording restored=-", b"stopped restored=yes").replace(b"live=cc", b"live=55")


@dataclass
class FinishedGuest:
    """A guest that has left these files."""

    files: Mapping[str, bytes]

    def get(self, path: str) -> bytes:
        return self.files[path]


def recorded(kind: str, after: bytes) -> Recorded:
    """What is read of a recorder of this kind that was at work and left this report."""
    live, mechanism = recorder_kinds()[kind].live, recorder_kinds()[kind].module.replace("-", "_")

    def of_kind(report: bytes) -> bytes:
        return report.replace(b"mechanism=kprobe", b"mechanism=" + mechanism.encode())

    during = of_kind(REPORT).replace(b"live=cc", b"live=" + live.encode())
    guest = FinishedGuest(dict.fromkeys((*warm_reports(1)[0], work.REPORT), during))
    guest = FinishedGuest({**guest.files, work.REPORT_AFTER: of_kind(after)})
    return read_recorded(cast(Guest, guest), recorder_kinds()[kind], 1)


def missed(count: int) -> bytes:
    return STOPPED.replace(b"missed=0", f"missed={count}".encode())


def test_what_a_recorder_has_recorded_is_read() -> None:
    assert recorded("kprobe", STOPPED) == Recorded(1, {"file_read": 1003}, 0, 0, 4096, 0)


@pytest.mark.parametrize("kind", [name for name in recorder_kinds() if name not in ("kprobe-optimized", "hook")])
def test_a_hit_whose_handler_was_left_out_fails_the_cell(kind: str) -> None:
    with pytest.raises(EvidenceError, match=r"^the kernel skipped the recorder's handler at 1 of 1004 hits") as failed:
        recorded(kind, missed(1))
    assert "file_read: 1" in str(failed.value)


def test_optimised_kprobes_may_miss_what_interrupts_hit_meanwhile() -> None:
    assert recorded("kprobe-optimized", missed(20)).lost == 20
    with pytest.raises(EvidenceError, match=r"handler at 21 of 1024 hits"):
        recorded("kprobe-optimized", missed(21))


def test_hits_that_never_came_to_a_ring_fail_the_cell() -> None:
    with pytest.raises(EvidenceError, match=r"^1002 events were written to the recorder's rings"):
        recorded("kprobe", STOPPED.replace(b"written=1003", b"written=1002"))


def test_different_work_is_not_compared() -> None:
    baseline = recorded_build()[0]
    assert baseline.work is not None
    check_same_work(baseline, baseline)
    for change in ({"done": baseline.work.done - 1}, {"digest": "5f" * 32}):
        other = baseline.model_copy(update={"work": baseline.work.model_copy(update=change)})
        with pytest.raises(EvidenceError, match="did not do the same work"):
            check_same_work(baseline, other)
