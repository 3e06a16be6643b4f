# SPDX-License-Identifier: GPL-2.0-only
"""Can any place of the kernel be probed under any workload, by the lab's modules and a user's, with the same proof?"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine
from experiment_boot import boot_of, measured_call, prepared_for
from module_maker import ModuleMaker
from static_programs import compile_program

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.module_source import render_own
from orchestrator.errors import LabError
from orchestrator.paths import cache_dir
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

KERNEL = "lab-i386-up"
"""gettid's first own instruction."""

WORKLOADS = Path(__file__).with_name("workloads")
GETPPID = "benchmark: {name: syscall, call: getppid, calls: 500}\n"
SLEEPERS = """\
#include "workload.h"
void workload_setup(void)
{
	for (int child = 0; child < 40; child++)
		if (sys0(SYS_fork) == 0) {
			long seconds[2] = {1000, 0};

			for (;;)
				sys2(SYS_nanosleep, seconds, 0);
		}
}
void workload(void) { sys0(SYS_sched_yield); }
"""
"""Its children live on: in schedule(), where they use up a kretprobe's instances."""
MISSED = r"the kernel (skipped the (handler|event) \d+ times|missed \d+ of \d+ returns)"
"""Of the checkout, as getting.c below: a program is compiled anew wherever its source is."""

pytestmark = pytest.mark.guest(kernel=KERNEL, timing="instructions")

Outcomes = dict[str, CellRecord | str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the user's files, for his experiment."""
    return Path(shutil.copytree(WORKLOADS, tmp_path / "user"))


@pytest.fixture
def measured(ready: ReadyGuest, workshop: BuildContext, folder: Path) -> Callable[[str], Outcomes]:
    """Measure an experiment in the test's guest: each cell's record, or its failure's message, by its id.

    Baselines are measured only where the experiment names them.
    """

    def measured(text: str) -> Outcomes:
        spec = ready.artifacts.kernel.spec
        cpu = "xeon-e5410" if spec.needs_long_mode else "pentium4"
        file = folder / "x.yaml"
        file.write_text(f"name: own\nkernels: [{spec.name}]\nmachines: [{{cpu: {cpu}}}]\n{text}")
        boot = boot_of(file)
        prepared = prepared_for(ready, workshop, boot)
        outcomes: Outcomes = {}
        for cell in (cell for cell in boot.cells if cell.probe != "none" or "none" in text):
            name = cell.id.split("/", 2)[2]
            try:
                outcomes[name] = measured_call(prepared, cell)
            except LabError as error:
                outcomes[name] = str(error)
        ready.guest.check_console()
        return outcomes

    return measured


def ok(outcome: CellRecord | str) -> CellRecord:
    assert isinstance(outcome, CellRecord), outcome
    assert outcome.status == "ok", outcome.reason
    assert outcome.evidence is not None
    return outcome


def test_arguments_reach_the_call(measured: Callable[[str], Outcomes]) -> None:
    """A jprobe records what the caller passed; the host knows it. A read of a closed file fails, and is measured so."""
    benchmark = "benchmark: {name: syscall, call: read, arguments: [%s, {buffer: 16}, 16], calls: 200}\n"
    failing = measured("probes: [none, jprobe]\nhandlers: [record]\n" + benchmark % -1)
    assert ok(failing["jprobe/record"]).evidence is not None
    reading = measured("probes: [none, jprobe]\nhandlers: [record]\n" + benchmark % 0)
    assert (ok(reading["none/record"]).value or 0) > (ok(failing["none/record"]).value or 0)


def test_a_point_inside_a_function_is_as_far_from_its_entry_as_named(measured: Callable[[str], Outcomes]) -> None:
    benchmark = f"benchmark: {{name: workload, file: {WORKLOADS / 'reading.c'}, calls: 500}}\n"
    outcomes = measured(f"points: [vfs_read, vfs_read+0x1]\nprobes: [kprobe]\n{benchmark}")
    entry, inside = (ok(outcomes[f"kprobe/noop/{point}"]).evidence for point in ("vfs_read", "vfs_read+0x1"))
    assert entry is not None
    assert inside is not None
    assert int(inside.address, 16) == int(entry.address, 16) + 1


def test_a_whole_program_is_run_and_compared(measured: Callable[[str], Outcomes], folder: Path) -> None:
    compile_program(BuildContext(Cache(cache_dir())), "i386", WORKLOADS / "whole.c", folder / "whole")
    text = "points: [__ia32_sys_getppid]\nprobes: [none, kprobe, djprobe]\n"
    benchmark = "benchmark: {name: workload, file: whole, hits: 1000, repeats: 6}\n"
    outcomes = measured(text + benchmark)
    for probe, each in (("kprobe", 529), ("djprobe", 39)):
        record = ok(outcomes[f"{probe}/noop/__ia32_sys_getppid"])
        assert record.metric == "cost per run"
        assert record.evidence is not None
        assert (record.evidence.hits, record.evidence.calls) == (3000, 3)
        assert record.overhead is not None
        assert record.interval is not None
        # A thousand hits of what one costs; ticks and the memory's state make the rest.
        assert each * 900 < record.overhead < each * 1100
        assert record.interval[0] <= record.overhead <= record.interval[1]


def test_a_users_modules_are_listed_with_the_labs(
    measured: Callable[[str], Outcomes], folder: Path, modules: ModuleMaker
) -> None:
    shutil.copy(Path(__file__).parents[2] / "kmods" / "templates" / "djprobe.c.j2", folder / "mine.c.j2")
    shutil.copy(modules.built(render_own(folder / "plain.c", {})).file, folder / "prebuilt.ko")
    outcomes = measured("probes: [djprobe, ./mine.c.j2, ./plain.c, ./prebuilt.ko]\nhandlers: [noop]\n" + GETPPID)
    lab, mine = (ok(outcomes[name]) for name in ("djprobe/noop", "mine.c.j2/noop"))
    assert lab.value == mine.value
    for name, mechanism in (("mine.c.j2", "jmp"), ("plain.c", "jump"), ("prebuilt.ko", "jump")):
        evidence = ok(outcomes[f"{name}/noop"]).evidence
        assert evidence is not None
        assert (evidence.mechanism, evidence.hits, evidence.restored) == (mechanism, 1000, True)
    recording = measured("probes: [./mine.c.j2, ./plain.c]\nhandlers: [record]\n" + GETPPID)
    evidence = ok(recording["mine.c.j2/record"]).evidence
    assert evidence is not None
    assert evidence.recorded == 1000
    assert "has no parameter handler, so it cannot record" in str(recording["plain.c/record"])


def test_a_module_for_another_kernel_is_unsupported(
    measured: Callable[[str], Outcomes], folder: Path, modules: ModuleMaker
) -> None:
    built = modules.built(render_own(folder / "plain.c", {})).file.read_bytes()
    release = modules.kernel.release.encode()
    (folder / "other.ko").write_bytes(built.replace(release, release[:-1] + b"z"))
    outcome = measured("probes: [./other.ko]\n" + GETPPID)["other.ko/noop"]
    assert isinstance(outcome, CellRecord)
    assert outcome.status == "unsupported"
    assert f"for kernel {release[:-1].decode()}z, and this one is {release.decode()}" in (outcome.reason or "")
    (folder / "broken.ko").write_bytes(built[:100])
    with pytest.raises(LabError, match="not a kernel module"):
        measured("probes: [./broken.ko]\n" + GETPPID)


@pytest.mark.parametrize(
    ("kernel", "cpu", "kinds"),
    [
        (KERNEL, "pentium4", ["kretprobe-boosted"]),
        pytest.param(
            "debian-amd64",
            "xeon-e5410",
            ["kretprobe", "kretprobe-ftrace", "kretprobe-event", "bpf-kretprobe"],
            marks=pytest.mark.nightly("each kind of kretprobe beside sleepers: half a minute"),
        ),
    ],
)
def test_returns_that_the_kernel_misses_are_named(tmp_path: Path, kernel: str, cpu: str, kinds: list[str]) -> None:
    """And the children of one cell's workload do not keep the next one from beginning."""
    (tmp_path / "sleepers.c").write_text(SLEEPERS)
    config = tmp_path / "sleepers.yaml"
    config.write_text(
        f"name: sleepers\nkernels: [{kernel}]\nmachines: [{{cpu: {cpu}}}]\npoints: [schedule]\n"
        f"probes: [none, {', '.join(kinds)}]\n"
        "benchmark: {name: workload, file: sleepers.c, calls: 200, repeats: 2}\n"
    )
    command = CommandLine(tmp_path / "lab")
    command.run("run", config)
    cells = {cell.probe: cell for cell in command.cells().values()}
    assert cells["none"].status == "ok", cells["none"].reason
    for kind in kinds:
        reason = cells[kind].reason or ""
        assert re.match(MISSED, reason), reason
        assert "hint: the kernel follows the returns of a limited number of threads" in reason
