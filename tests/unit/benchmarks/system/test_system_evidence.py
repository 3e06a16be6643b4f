# SPDX-License-Identifier: GPL-2.0-only
"""Is a recorder believed only where its places are armed, and a workload only where it did what the baseline did?"""

from __future__ import annotations

import pytest
from record_builders import recorded_build

from orchestrator.benchmarks.system.compare import check_same_work
from orchestrator.benchmarks.system.recording import check_armed
from orchestrator.catalog.recorders import recorder_kinds
from orchestrator.errors import EvidenceError
from orchestrator.probes.recorder import MECHANISMS
from orchestrator.probes.recorder_report import parse_report

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


def test_different_work_is_not_compared() -> None:
    baseline = recorded_build()[0]
    assert baseline.work is not None
    check_same_work(baseline, baseline)
    for change in ({"done": baseline.work.done - 1}, {"digest": "5f" * 32}):
        other = baseline.model_copy(update={"work": baseline.work.model_copy(update=change)})
        with pytest.raises(EvidenceError, match="did not do the same work"):
            check_same_work(baseline, other)
