# SPDX-License-Identifier: GPL-2.0-only
"""Is a bpftrace one-liner measured, proved and removed, and does a wrong one fail with words that say why?"""

from __future__ import annotations

import dataclasses

import pytest
from experiment_boot import artifacts_of, boot_of_calls, measured_call

from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.artifacts.images import cached_image
from orchestrator.catalog.images import image
from orchestrator.catalog.probes import IMAGE
from orchestrator.errors import EvidenceError
from orchestrator.paths import cache_dir
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import ReadyGuest

READING = {"name": "syscall", "call": "read", "arguments": [0, 0, 0], "calls": 1000, "repeats": 2}

pytestmark = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions", image=IMAGE)
NIGHTLY = pytest.mark.nightly("bpftrace starts anew for each one-liner: five minutes for all of them on a busy host")


@pytest.fixture(autouse=True)
def _image_in_the_cache() -> None:
    """Skip where the image with bpftrace, which has 430 MB, is not there yet."""
    if cached_image(BuildContext(Cache(cache_dir()), offline=True), image(IMAGE)) is None:
        pytest.skip(f"{IMAGE} is not built yet; build it once: ./lab build image {IMAGE}")


def measured(ready: ReadyGuest, context: BuildContext, text: str, **benchmark: object) -> CellRecord:
    """The record of reads with a one-liner at vfs_read()."""
    boot = boot_of_calls(
        image=IMAGE,
        kernels=["debian-amd64"],
        machines=[{"cpu": "xeon-e5410"}],
        points=["vfs_read"],
        probes=["none", f"bpftrace: {text}"],
        benchmark={**READING, **benchmark},
    )
    return measured_call(dataclasses.replace(ready, artifacts=artifacts_of(context, boot)), boot.cells[-1])


def check_gone(ready: ReadyGuest) -> None:
    """Neither bpftrace nor a program of its own is left, and the kernel counts no runs."""
    assert ready.guest.run(["pgrep", "-x", "bpftrace"]).status == 1
    assert ready.guest.succeed(["ls", "/sys/fs/bpf"]).text == ""
    assert ready.guest.run(["sh", "-c", "cat /proc/[0-9]*/fdinfo/* 2>/dev/null | grep ^prog_id"]).status == 1
    assert ready.guest.get("/proc/sys/kernel/bpf_stats_enabled").strip() == b"0"


def check_proved(record: CellRecord, ready: ReadyGuest, mechanism: str) -> None:
    """Hits are calls, by the mechanism at the point, and nothing is left."""
    assert record.status == "ok"
    assert record.evidence is not None
    assert (record.evidence.hits, record.evidence.calls, record.evidence.mechanism) == (1000, 1000, mechanism)
    check_gone(ready)


def test_a_one_liner_runs_at_each_call_and_is_gone_afterwards(ready: ReadyGuest, workshop: BuildContext) -> None:
    record = measured(ready, workshop, "kprobe:vfs_read { @[comm] = count(); }")
    assert record.probe == "bpftrace.kprobe_vfs_read_comm_cou.aeb1cc"
    assert "bpftrace: kprobe:vfs_read { @[comm] = count(); }" in record.notes
    assert record.samples == (1546.0, 1546.0)
    check_proved(record, ready, "ftrace")


@NIGHTLY
@pytest.mark.parametrize(
    ("text", "mechanism"),
    [
        ("kfunc:vfs_read { @ = count(); }", "direct"),
        (
            "kprobe:vfs_read { @at[tid] = nsecs; } kretprobe:vfs_read /@at[tid]/ { delete(@at[tid]); }",
            "ftrace",
        ),
        ("kprobe:vfs_read /pid == 1/ { @ = count(); }", "ftrace"),
        ("tracepoint:syscalls:sys_enter_read { @ = count(); }", "elsewhere"),
    ],
)
def test_each_of_its_probes_is_proved(ready: ReadyGuest, workshop: BuildContext, text: str, mechanism: str) -> None:
    check_proved(measured(ready, workshop, text), ready, mechanism)


@NIGHTLY
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kprobe:vfs_read { @[comm = count(); }", "syntax error, unexpected =, expecting ] or"),
        ("kprobe:vfs_raed { @ = count(); }", "cannot attach kprobe, probe entry may not exist"),
        ('kprobe:vfs_read { system("touch /tmp/ran"); }', "system() is an unsafe function being used in safe mode"),
        (
            "kprobe:vfs_write { @ = count(); }",
            "program kprobe:vfs_write is attached to vfs_write, and the point is vfs_read",
        ),
        (
            "tracepoint:syscalls:sys_enter_write { @ = count(); }",
            "the BPF program tracepoint:sys_enter_write (tracepoint/",
        ),
        ("kprobe:vfs_read* { @ = count(); }", ", and the point is vfs_read"),
        ("--unsafe", "bpftrace ended instead of attaching the one-liner"),
        ("$(touch /tmp/ran)", "bpftrace ended instead of attaching the one-liner"),
    ],
)
def test_one_that_is_refused_or_not_hit_has_no_number(
    ready: ReadyGuest, workshop: BuildContext, text: str, words: str
) -> None:
    with pytest.raises(EvidenceError) as raised:
        measured(ready, workshop, text)
    assert words in str(raised.value)
    assert ready.guest.run(["ls", "/tmp/ran"]).status != 0
    check_gone(ready)


@NIGHTLY
@pytest.mark.parametrize("end", ["", " END { clear(@); }"])
def test_a_map_that_is_full_fails_the_cell(ready: ReadyGuest, workshop: BuildContext, end: str) -> None:
    # The keys 0 to 4095 fill it before calls are timed. No timed hit finds room, so all samples are equal.
    filling = "kprobe:vfs_read { unroll(16) { $key = @n < 4096 ? @n : 4096; @[$key] = 1; @n = @n + 1; } }" + end
    with pytest.raises(EvidenceError, match=r"^bpftrace's map @ is full with 4096 keys"):
        measured(ready, workshop, filling)
    check_gone(ready)
