# SPDX-License-Identifier: GPL-2.0-only
"""Is a bpftrace one-liner measured, proved and removed, and does a wrong one fail with words that say why?"""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from elftools.elf.elffile import ELFFile
from experiment_boot import boot_of_calls, measured_call, prepared_for
from needed_images import needed_image

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.guest_programs import bpf_tool
from orchestrator.catalog.bpftrace_text import UnreadTextError, attach_points
from orchestrator.catalog.probes import IMAGE, probes
from orchestrator.errors import EvidenceError
from orchestrator.probes.bpf_attachment import target_of
from orchestrator.probes.bpf_program import attach, attached_by, bring, compile_programs
from orchestrator.probes.point import find_place
from orchestrator.probes.user_point import UserPoint
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

LINKS = ("multi", "functions", "places", "trampoline", "typed", "raw")
"""Links that have no perf event."""
READING = {"name": "syscall", "call": "read", "arguments": [0, 0, 0], "calls": 1000, "repeats": 2}
NEWER = f"{IMAGE}-13"

pytestmark = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions", image=IMAGE)
NIGHTLY = pytest.mark.nightly("bpftrace starts anew for each one-liner: five minutes for all of them on a busy host")


@pytest.fixture(autouse=True)
def _image_in_the_cache(request: pytest.FixtureRequest) -> None:
    """Skip where the image with bpftrace, which has 430 MB, is not there yet; build it every night."""
    name = request.node.get_closest_marker("guest").kwargs.get("image")
    if name is not None:
        needed_image(request.config, name)


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
    return measured_call(prepared_for(ready, context, boot), boot.cells[-1])


def check_gone(ready: ReadyGuest) -> None:
    """Neither bpftrace nor a program of its own is left, and the kernel counts no runs."""
    assert ready.guest.run(["pgrep", "-x", "bpftrace"]).status == 1
    assert ready.guest.succeed(["ls", "/sys/fs/bpf"]).text == ""
    assert ready.guest.run(["sh", "-c", "cat /proc/[0-9]*/fdinfo/* 2>/dev/null | grep ^prog_id"]).status == 1
    assert ready.guest.get("/proc/sys/kernel/bpf_stats_enabled").strip() == b"0"


def check_proved(record: CellRecord, ready: ReadyGuest, mechanism: str, attached: str) -> None:
    """Hits are calls, by the mechanism at the point, it is the probe kind that the kernel says, and nothing is left."""
    assert (record.status, record.parameters["attached"]) == ("ok", attached)
    assert record.evidence is not None
    assert (record.evidence.hits, record.evidence.calls, record.evidence.mechanism) == (1000, 1000, mechanism)
    check_gone(ready)


def test_a_one_liner_runs_at_each_call_and_is_gone_afterwards(ready: ReadyGuest, workshop: BuildContext) -> None:
    record = measured(ready, workshop, "kprobe:vfs_read { @[comm] = count(); }")
    assert record.probe == "bpftrace.kprobe_vfs_read_comm_cou.aeb1cc"
    assert record.parameters["bpftrace"] == "0.17.0"
    assert record.samples == (1546.0, 1546.0)
    check_proved(record, ready, "ftrace", "bpf-kprobe")


@NIGHTLY
@pytest.mark.parametrize(
    ("text", "mechanism", "attached"),
    [
        ("kfunc:vfs_read { @ = count(); }", "direct", "bpf-fentry"),
        (
            "kprobe:vfs_read { @at[tid] = nsecs; } kretprobe:vfs_read /@at[tid]/ { delete(@at[tid]); }",
            "ftrace",
            "bpf-kprobe, bpf-kretprobe",
        ),
        ("kprobe:vfs_read /pid == 1/ { @ = count(); }", "ftrace", "bpf-kprobe"),
        # Debian's Linux 6.1 has no links to many functions.
        ("kprobe:vfs_rea* { @ = count(); }", "ftrace", "bpf-kprobe (3 places)"),
        ("kprobe:vfs_read { @ = count(); } kprobe:vfs_write { @w = count(); }", "ftrace", "bpf-kprobe (2 places)"),
        ("tracepoint:syscalls:sys_enter_read { @ = count(); }", "elsewhere", "bpf-tracepoint"),
    ],
)
def test_each_of_its_probes_is_proved(
    ready: ReadyGuest, workshop: BuildContext, text: str, mechanism: str, attached: str
) -> None:
    check_proved(measured(ready, workshop, text), ready, mechanism, attached)


@NIGHTLY
@pytest.mark.parametrize(
    "text",
    [
        '/* kprobe:vfs_open { */ kprobe:"vfs_read" { @ = count(); }',
        r'kprobe:vfs_"re\141d" { @["}"] = 1; }',
        "kprobe : /* a */ vfs_ /* b */ read { }",
        'k:vfs_read+0x5,kr:vfs_write /4 / 2 == arg0/ { printf("k:vfs_open {"); } END { }',
        "kprobe:vfs_read { $file = (struct file *)arg0; @ = $file; } t:syscalls:sys_enter_read { }",
        "kprobe:vfs_read/* c */ { }",
        "kprobe:vfs_read { } // kprobe:vfs_open",
        r'kprobe:"\q" { }',
        "kprobe:vfs_read",
    ],
)
def test_bpftrace_itself_reads_the_same_attach_points(ready: ReadyGuest, text: str) -> None:
    said = ready.guest.run(["bpftrace", "-d", "-e", text])
    shown = (said.stdout + said.stderr).decode(errors="replace")
    try:
        points = [str(replace(point, provider=point.kind or "")) for point in attach_points(text)]
    except UnreadTextError:
        assert "ERROR: " in shown
        return
    listed = [line[1:] for line in shown.splitlines() if re.match(r" (?:\w+:|BEGIN|END)", line)]
    assert list(dict.fromkeys(listed)) == points, shown


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
        ("kprobe:vfs_wri* { @ = count(); }", ", and the point is vfs_read"),
        ("--unsafe", "bpftrace ended instead of attaching the one-liner"),
        ("$(touch /tmp/ran)", "bpftrace ended instead of attaching the one-liner"),
    ],
)
def test_one_liner_that_is_refused_or_not_hit_has_no_number(
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


# Is what another process has attached read as the catalogue's kind, whatever that is?

LATEST = "debian-amd64@7.3"
LINKED = [kind for kind in probes().values() if kind.program is not None and kind.program.link in LINKS]


@pytest.fixture
def function_of_a_program(ready: ReadyGuest) -> UserPoint:
    """Where a program begins that nobody runs meanwhile: a uretprobe there takes the number of its arguments away."""
    path = ready.guest.succeed(["sh", "-c", "command -v callbench"]).text.strip()
    elf = ELFFile(io.BytesIO(ready.guest.get(path)))
    address = elf.header["e_entry"]
    (offset,) = elf.address_offsets(address)
    return UserPoint("_start", 0, address, b"", program=path, file_offset=offset)


@pytest.mark.kernels(LATEST)
@pytest.mark.guest(kernel=LATEST, cpu="xeon-e5410", timing="instructions")
@pytest.mark.nightly("a newer kernel, which has to be fetched")
def test_every_link_of_another_process_has_the_catalogues_name(
    ready: ReadyGuest, workshop: BuildContext, function_of_a_program: UserPoint
) -> None:
    guest = ready.guest
    in_kernel, of_hook = (
        find_place(guest, ready.symbols, f"{name}_file_permission", 0) for name in ("security", "bpf_lsm")
    )
    bring(guest, bpf_tool(workshop, "x86_64"))
    compile_programs(guest, on=True)
    seen = {}
    for kind in LINKED:
        point = function_of_a_program if kind.site == "program" else of_hook if kind.name == "bpf-lsm" else in_kernel
        program = attach(guest, "lab-a", "noop", target_of(guest, kind, point))
        holder = guest.succeed(["sh", "-c", "/tmp/bpfprobe hold /sys/fs/bpf/lab-a >/dev/null 2>&1 & echo $!"]).text
        guest.wait_until_succeeds(["sh", "-c", f"ls -l /proc/{int(holder)}/fd | grep -q bpf.link"])
        seen[kind.name] = [(attached.kind, attached.places) for attached in attached_by(guest, int(holder))]
        guest.succeed(["kill", holder.strip()])
        program.detach()
    # An optimised uprobe differs in its place alone.
    assert seen == {name: [(re.sub("-(optimized|interpreted)$", "", name), 1)] for name in seen}
    assert len(seen) == len(LINKED) >= 20
