# SPDX-License-Identifier: GPL-2.0-only
"""Which of a run's instructions are the instrumentation's, and where has a kernel its markers?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from built_code import build_tree
from host_toolchain import a_kernel
from record_builders import recorded_build

from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree
from orchestrator.artifacts.machine_code import decoded
from orchestrator.benchmarks.registry import kinds
from orchestrator.benchmarks.system import work
from orchestrator.benchmarks.system.kind import check_same_work
from orchestrator.benchmarks.system.measurement import (
    Instrumentation,
    check_armed,
    passed_notes,
    read_recorded,
    unsupported_reason,
)
from orchestrator.benchmarks.system.work import warm_reports
from orchestrator.catalog.probes import recorder_kinds
from orchestrator.errors import EvidenceError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.guest.guest import Guest
from orchestrator.paths import data_dir
from orchestrator.probes.marker_code import marker_code
from orchestrator.probes.recorder import MECHANISMS, RecorderReport, Site, parse_report
from orchestrator.probes.symbols import ModuleMemory
from orchestrator.profile.counted.counts import Code, Counts, Region
from orchestrator.profile.counted.places import Function, Places

PLACES = Places(
    function_at=lambda address: (
        Function(0xC1000000, "vfs_read") if address < 0xC2000000 else Function(0xC8000000, "hit", "m")
    ),
    ranges=[range(0xC1000000, 0xC2000000), range(0xC8000000, 0xC8001000)],
    kernel_start=0xC0000000,
    program="all programs",
)


MODULE = ModuleMemory(0xC8000000, 0xC8001000)


PLAIN = {Code(0, ""): Counts(1000), Code(0xC1000000, "55"): Counts(100)}


def executed(more: dict[Code, int], *, module: ModuleMemory | None = None, sites: Sequence[Site] = ()) -> int:
    counts = {**PLAIN, **{code: Counts(number) for code, number in more.items()}}
    instrumentation = Instrumentation(PLACES, [range(0xC1000100, 0xC1000106)], module, sites)
    return instrumentation.executed(Region(sum(count.executed for count in counts.values()), counts))


def test_without_any_there_is_none() -> None:
    assert executed({}) == 0


def test_a_marker_is_its_load_its_test_and_its_branch() -> None:
    marker = {Code(0xC1000100, "b000"): 7, Code(0xC1000102, "84c0"): 7, Code(0xC1000104, "750a"): 7}
    assert executed({**marker, Code(0xC1000106, "90"): 7}) == 21


def test_the_module_counts_where_it_is_the_works_own() -> None:
    hook = {Code(0xC8000010, "55"): 3, Code(0xC8000011, "c3"): 3}
    assert executed(hook, module=MODULE) == 6
    assert executed(hook) == 0


def test_code_that_was_made_for_probes_counts() -> None:
    assert executed({Code(0xC7000000, "55"): 5}) == 5


@pytest.mark.parametrize(("live", "own"), [("cc8944240c", "cc"), ("e90000100a", "e90000100a")])
def test_a_probe_point_counts_as_long_as_its_probe_is_there(live: str, own: str) -> None:
    site = Site("vfs_read", 0xC1000200, bytes.fromhex("558944240c"), bytes.fromhex(live))
    assert executed({Code(0xC1000200, own): 9, Code(0xC1000200, "55"): 4}, sites=[site]) == 9


SOURCE = """
__asm__(".text\\n"
	"one:	movb $0, %al\\n	testb %al, %al\\n	jne 2f\\n"
	"3:	movb $0, %al\\n	testb %al, %al\\n	jne 5f\\n"
	"6:	ret\\n"
	"2:	xorl %ecx, %ecx\\n	call one\\n	decl %ecx\\n	jne 4f\\n	call one\\n"
	"4:	jmp 3b\\n"
	"5:	call one\\n	testl %eax, %eax\\n	jmp one\\n"
	".section __markers, \\"aw\\"\\n"
	".globl __start_kernel_markers, __stop_kernel_markers\\n"
	"__start_kernel_markers:	.WORD 0, one, 3b, 2b, 0, 3b, 6b, 5b\\n"
	"__stop_kernel_markers:\\n");
void _start(void) { }
"""


@pytest.mark.parametrize(("word", "directive"), [(4, "long"), (8, "quad")])
def test_markers_are_found_in_the_kernels_table(tmp_path: Path, word: int, directive: str) -> None:
    """The second one's call is followed by a copy of the function's own code."""
    source = tmp_path / "kernel.c"
    source.write_text(SOURCE.replace("WORD", directive))
    code = code_of_tree(build_tree(tmp_path, source, word))
    assert isinstance(code, KernelCode)
    one = code.address("one")
    assert one is not None
    names = [
        [instruction.name for instruction in decoded(code.read(span.start, len(span)), span.start, word)]
        for span in marker_code(code)
    ]
    assert marker_code(code)[0] == range(one, one + 6)
    assert names[:2] == [["mov", "test", "jne"]] * 2
    assert names[2:] == [["xor", "call", "dec", "jne", "call", "jmp"], ["call"]]


def test_a_kernel_without_markers_has_none(tmp_path: Path) -> None:
    source = tmp_path / "kernel.c"
    source.write_text("void _start(void) { }\n")
    code = code_of_tree(build_tree(tmp_path, source, 4))
    assert code is not None
    assert marker_code(code) == ()


# Does a whole system's table say what a recorder's kprobes cost besides recording?


@pytest.mark.parametrize(
    ("probe", "config", "words"),
    [
        ("none", {"CONFIG_OPTPROBES": "y"}, []),
        ("djprobe", {"CONFIG_OPTPROBES": "y"}, []),
        ("kprobe", {"CONFIG_OPTPROBES": "y"}, ["the post-handler", "the aggregator"]),
        ("kprobe", {}, ["the post-handler"]),
        ("jprobe", {"CONFIG_OPTPROBES": "y"}, ["the aggregator"]),
    ],
)
def test_a_kprobe_s_note_names_what_a_hit_passes(probe: str, config: dict[str, str], words: list[str]) -> None:
    planned = plan(load_experiment(data_dir("configs") / "lkst-events-2005.yaml", kinds()))
    cell = next(cell for cell in planned.cells if cell.probe == probe)
    notes = passed_notes(a_kernel("lab-i386-up", config), cell)
    assert [note.startswith(f"a hit passes {word}") for note, word in zip(notes, words, strict=True)] == [True] * len(
        words
    )


@pytest.mark.parametrize(
    ("name", "other"),
    [("lab-i386-up@6.12", "lab-i386-up-markers@6.12"), ("debian-686", "lab-i386-up-markers")],
)
def test_a_kernel_without_markers_names_one_that_has_them(name: str, other: str) -> None:
    planned = plan(load_experiment(data_dir("configs") / "lkst-events-2005.yaml", kinds()))
    (cell,) = (cell for cell in planned.cells if cell.probe == "hook")
    reason = unsupported_reason(a_kernel(name, {"CONFIG_DEBUG_FS": "y"}), cell)
    assert reason is not None
    assert reason.endswith(f": hooks are in kernels that have markers, such as {other}")


def test_a_kernel_that_cannot_mount_a_file_is_not_supported() -> None:
    planned = plan(load_experiment(data_dir("configs") / "lkst-events-2005.yaml", kinds()))
    cell = next(cell for cell in planned.cells if cell.probe == "none")
    config = {f"CONFIG_{name}": "y" for name in ("BLK_DEV_LOOP", "SQUASHFS", "SQUASHFS_LZ4", "TMPFS")}
    assert unsupported_reason(a_kernel("lab-i386-up", config), cell) is None
    # A driver that is a module needs the kernel's modules, which this one has not.
    without = {**config, "CONFIG_BLK_DEV_LOOP": "m", "CONFIG_TMPFS": "n"}
    lacking = unsupported_reason(a_kernel("lab-i386-up", without), cell)
    assert lacking is not None
    assert lacking.endswith("cannot have a whole system in memory: it lacks CONFIG_BLK_DEV_LOOP, CONFIG_TMPFS")


# Is a recorder believed only where its places are armed, and a workload only where it did what the baseline did?

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


def recorded(kind: str, after: bytes) -> tuple[RecorderReport, float]:
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
    report, in_a_run = recorded("kprobe", STOPPED)
    assert (report, in_a_run) == (parse_report(STOPPED), 0)
    assert (len(report.sites), report.events[0].recorded, report.missed, report.slots) == (1, 1003, 0, 4096)


@pytest.mark.parametrize("kind", [name for name in recorder_kinds() if name not in ("kprobe-optimized", "hook")])
def test_a_hit_whose_handler_was_left_out_fails_the_cell(kind: str) -> None:
    with pytest.raises(EvidenceError, match=r"^the kernel skipped the recorder's handler at 1 of 1004 hits") as failed:
        recorded(kind, missed(1))
    assert "file_read: 1" in str(failed.value)


def test_optimised_kprobes_may_miss_what_interrupts_hit_meanwhile() -> None:
    assert recorded("kprobe-optimized", missed(20))[0].missed == 20
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
        other_cell = baseline.model_copy(update={"work": baseline.work.model_copy(update=change)})
        with pytest.raises(EvidenceError, match="did not do the same work"):
            check_same_work(baseline, other_cell)
