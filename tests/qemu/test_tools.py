# SPDX-License-Identifier: GPL-2.0-only
"""Is a tool that attaches its programs itself measured, proved and ended, and is a wrong one told why it has none?"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from experiment_boot import boot_of_calls, measured_call, prepared_for
from needed_images import needed_image

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.tools import TOOLS_IMAGE, tool_command
from orchestrator.cost.call_table import call_table
from orchestrator.cost.cost_machine import cost_machine
from orchestrator.cost.tool_calls import tool_calls
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

SOURCE = Path(__file__).with_name("tools") / "own_tool.c"
MACHINE = {"cpu": "xeon-e5410", "memory": "512M"}
GETPPID = {"name": "syscall", "call": "getppid", "calls": 1000, "repeats": 2}

pytestmark = pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410", timing="instructions", memory="512M")
WITH_TOOLS = pytest.mark.guest(
    kernel="debian-amd64", cpu="xeon-e5410", timing="instructions", memory="512M", image=TOOLS_IMAGE
)
OF_PACKAGES = pytest.mark.nightly("an image with Debian's tools, and a minute for each")


@pytest.fixture(autouse=True)
def _image_in_the_cache(request: pytest.FixtureRequest) -> None:
    """Skip where the image with the tools is not there yet; build it every night."""
    name = request.node.get_closest_marker("guest").kwargs.get("image")
    if name is not None:
        needed_image(request.config, name)


@pytest.fixture(scope="module")
def own_tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's own tool, linked with -static."""
    program = tmp_path_factory.mktemp("tools") / "own_tool"
    subprocess.run(["gcc", "-static", "-O2", "-Wall", "-Werror", "-o", program, SOURCE], check=True)
    return program


def measured(
    ready: ReadyGuest, context: BuildContext, probe: str, image: str | None = None, **benchmark: object
) -> CellRecord:
    made = {**GETPPID, **benchmark}
    boot = boot_of_calls(
        **({} if image is None else {"image": image}),
        kernels=["debian-amd64"],
        machines=[MACHINE],
        points=[f"__x64_sys_{made['call']}"],
        probes=["none", probe],
        benchmark=made,
    )
    return measured_call(prepared_for(ready, context, boot), boot.cells[-1])


def check_gone(ready: ReadyGuest) -> None:
    """Neither a program nor a pin of the tool's is left, and the kernel counts no runs."""
    assert ready.guest.run(["sh", "-c", "cat /proc/[0-9]*/fdinfo/* 2>/dev/null | grep ^prog_id"]).status == 1
    assert ready.guest.succeed(["ls", "/sys/fs/bpf"]).text == ""
    assert ready.guest.get("/proc/sys/kernel/bpf_stats_enabled").strip() == b"0"


def test_a_tool_of_the_users_is_measured_whole_and_by_program(
    ready: ReadyGuest, workshop: BuildContext, own_tool: Path
) -> None:
    alone, both = (measured(ready, workshop, f"tool: {own_tool}{manner}") for manner in ("", " twice"))
    for record, programs in ((alone, ["at_entry"]), (both, ["at_entry", "at_exit"])):
        assert (record.status, len(set(record.samples))) == ("ok", 1)
        assert record.evidence is not None
        assert (record.evidence.hits, record.evidence.calls) == (1000, 1000)
        assert [program.name for program in record.evidence.programs] == programs
        # The guest's agent makes some calls in the pass, too.
        assert all(1000 <= program.runs <= 1050 for program in record.evidence.programs)
    assert alone.parameters["attached"] == "bpf-raw-tracepoint"
    assert both.parameters["attached"] == "bpf-raw-tracepoint (2 places)"
    assert both.samples[0] > alone.samples[0] + 20
    check_gone(ready)


@pytest.mark.parametrize(
    ("manner", "words"),
    [
        ("ends", "own_tool ended instead of attaching its programs\n    own_tool: no such probe: nowhere"),
        pytest.param("asks", "the lab gives it no terminal", marks=pytest.mark.nightly("seconds for each")),
        pytest.param("idle", "own_tool attaches nothing: it waits", marks=pytest.mark.nightly("seconds for each")),
        pytest.param("deaf", "own_tool does not end on Ctrl-C", marks=pytest.mark.nightly("seconds for each")),
        pytest.param(
            "leaves",
            "own_tool ends on Ctrl-C, and leaves processes behind",
            marks=pytest.mark.nightly("seconds for each"),
        ),
        pytest.param("again", "own_tool never settles", marks=pytest.mark.nightly("seconds for each")),
        pytest.param("prints", "own_tool prints more than 8 MB", marks=pytest.mark.nightly("seconds for each")),
        pytest.param(
            "pins",
            "own_tool leaves pins behind: /sys/fs/bpf/left_behind",
            marks=pytest.mark.nightly("seconds for each"),
        ),
    ],
)
def test_a_tool_that_does_what_it_should_not_has_no_number(
    ready: ReadyGuest, workshop: BuildContext, own_tool: Path, manner: str, words: str
) -> None:
    with pytest.raises(EvidenceError) as raised:
        measured(ready, workshop, f"tool: {own_tool} {manner}", calls=100)
    assert words in str(raised.value)
    ready.guest.run(["rm", "-f", "/sys/fs/bpf/left_behind"])
    check_gone(ready)


@OF_PACKAGES
@WITH_TOOLS
def test_a_tool_whose_events_are_read_is_measured(ready: ReadyGuest, workshop: BuildContext) -> None:
    """Its buffer has room for some hundred calls, so that it reads between batches of fewer."""
    record = measured(
        ready, workshop, "tool: opensnoop", TOOLS_IMAGE, call="openat", arguments=[-100, "/nowhere", 0], expect="ENOENT"
    )
    assert record.status == "ok"
    assert record.evidence is not None
    assert 0 < record.evidence.calls < 1000
    ran = {program.name: program.runs for program in record.evidence.programs}
    assert ran["tracepoint__syscalls__sys_enter_openat"] >= record.evidence.calls
    assert str(record.parameters["tool_program"]).endswith("/sbin/opensnoop-libbpf")
    check_gone(ready)


@OF_PACKAGES
@WITH_TOOLS
def test_a_tool_that_clears_the_screen_goes_on(ready: ReadyGuest, workshop: BuildContext) -> None:
    """It starts ``clear``, and ends where that fails."""
    record = measured(ready, workshop, "tool: filetop 1", TOOLS_IMAGE, call="read", arguments=[0, 0, 0])
    assert record.status == "ok"
    check_gone(ready)


SCRIPT = """\
#include <linux/fs.h>
#define LEAST 0
BEGIN { printf("begins\\n"); }
kprobe:vfs_read /arg2 >= LEAST/ { @bytes[comm] = hist(arg2); }
kretprobe:vfs_read { @[str($1)] = count(); }
interval:s:1 { printf("a second\\n"); }
profile:hz:99 { @samples = count(); }
END { clear(@bytes); }
"""


@OF_PACKAGES
@WITH_TOOLS
def test_a_script_is_given_to_bpftrace_as_it_is(ready: ReadyGuest, workshop: BuildContext, tmp_path: Path) -> None:
    script = tmp_path / "reads.bt"
    script.write_text(SCRIPT + "// a long script\n" * 1000)
    record = measured(ready, workshop, f"{script} word", TOOLS_IMAGE, call="read", arguments=[0, 0, 0])
    assert record.status == "ok"
    assert record.probe.startswith("reads.bt.word.")
    assert record.evidence is not None
    of_calls = [program for program in record.evidence.programs if program.runs > 900]
    assert {program.attached for program in of_calls} == {"bpf-kprobe vfs_read", "bpf-kretprobe vfs_read"}
    assert len(record.evidence.programs) >= 4
    check_gone(ready)


@OF_PACKAGES
@WITH_TOOLS
def test_a_tool_that_the_image_lacks_is_named(ready: ReadyGuest, workshop: BuildContext) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest's image has no nosuchtool") as raised:
        measured(ready, workshop, "tool: nosuchtool", TOOLS_IMAGE)
    assert raised.value.hint == "add its package to a recipe of yours"


@pytest.mark.nightly("a guest makes 45 calls twice")
def test_the_calls_that_reach_a_tool_are_found(workshop: BuildContext, own_tool: Path) -> None:
    """Both programs are reached by any call, so that one part of the table is enough, and the first call is taken."""
    kernel = ready_kernel(workshop, kernel_spec("debian-amd64"))
    calls = tool_calls(workshop, kernel, cost_machine("xeon-e5410"), tool_command(f"tool: {own_tool} twice"), None)
    assert calls.reaching == ["getppid"]
    assert calls.programs == ("bpf-raw-tracepoint sys_enter", "bpf-raw-tracepoint sys_exit")
    assert [calls.calls[name] for name in ("getppid", "read_file", "create")] == [(1, 1), (2, 2), (3, 3)]
    assert len(calls.calls) <= len(call_table()) // 2
