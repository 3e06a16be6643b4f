# SPDX-License-Identifier: GPL-2.0-only
"""Can any place of the kernel be probed under any workload, by the lab's modules and a user's, with the same proof?"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import CommandLine
from elsewhere import ELSEWHERE
from experiment_boot import boot_of, measured_call, prepared_for
from module_maker import ModuleMaker
from static_programs import compile_program

from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.artifacts.module_source import render_own
from orchestrator.errors import LabError
from orchestrator.paths import cache_dir
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import ReadyGuest

KERNEL = "lab-i386-up"
WITH_ENDBR = "lab-x86_64-smp-ibt-ftrace"
ENTRIES = {
    KERNEL: ["__ia32_sys_gettid"],
    "debian-amd64": ["__x64_sys_gettid+0x5"],
    WITH_ENDBR: ["__x64_sys_gettid+0x9"],
}
"""gettid's first own instruction."""

WORKLOADS = Path(__file__).with_name("workloads")
GETPPID = "benchmark: {name: syscall, call: getppid, calls: 500}\n"
GETTID = "benchmark: {name: syscall, call: gettid, calls: 500}\n"
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
READING = f"benchmark: {{name: workload, file: {WORKLOADS / 'reading.c'}, calls: 500}}\n"
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


# --- other system calls ---------------------------------------------------------------------------


ALL_KINDS = ("kprobe", "kprobe-optimized", "kretprobe-boosted", "jprobe", "djprobe", "tracepoint")


@pytest.mark.parametrize(
    ("kernel", "kinds"),
    [
        pytest.param(KERNEL, ("kprobe", "tracepoint")),
        pytest.param(KERNEL, ALL_KINDS, marks=pytest.mark.nightly("the other kinds of probe: five seconds")),
        pytest.param(
            "debian-amd64",
            ALL_KINDS,
            marks=[pytest.mark.guest(kernel="debian-amd64", cpu="xeon-e5410"), ELSEWHERE],
        ),
        pytest.param(
            WITH_ENDBR,
            ALL_KINDS,
            marks=[pytest.mark.kernels(WITH_ENDBR), pytest.mark.guest(kernel=WITH_ENDBR, cpu="xeon-e5410")],
        ),
    ],
)
def test_another_system_call_is_measured_like_gettimeofday(
    measured: Callable[[str], Outcomes], kernel: str, kinds: tuple[str, ...]
) -> None:
    outcomes = measured(f"probes: [none, {', '.join(kinds)}]\nhandlers: [noop, record]\n{GETTID}")
    assert len(outcomes) == 2 * (1 + len(kinds))
    for name, outcome in outcomes.items():
        record = ok(outcome)
        assert len(set(record.samples)) == 1
        assert record.parameters["call"] == "gettid"
        assert record.evidence is not None
        if not name.startswith("none"):
            assert (record.evidence.hits, record.evidence.calls) == (1000, 1000)
            # Of the tracepoint's events those of other system calls are others'.
            assert (record.evidence.others == 0) == (name != "tracepoint/record")
            assert record.evidence.recorded == (1000 if name.endswith("record") else None)
        if not name.startswith(("none", "tracepoint")):
            assert record.evidence.symbol in ENTRIES[kernel]


def test_arguments_reach_the_call(measured: Callable[[str], Outcomes]) -> None:
    """A jprobe records what the caller passed; the host knows it. A read of a closed file fails, and is measured so."""
    benchmark = "benchmark: {name: syscall, call: read, arguments: [%s, {buffer: 16}, 16], calls: 200}\n"
    failing = measured("probes: [none, jprobe]\nhandlers: [record]\n" + benchmark % -1)
    assert ok(failing["jprobe/record"]).evidence is not None
    reading = measured("probes: [none, jprobe]\nhandlers: [record]\n" + benchmark % 0)
    assert (ok(reading["none/record"]).value or 0) > (ok(failing["none/record"]).value or 0)


def test_a_call_that_does_not_exist_measures_nothing(measured: Callable[[str], Outcomes]) -> None:
    outcomes = measured("probes: [none]\nbenchmark: {name: syscall, call: vserver}\npoints: [__ia32_sys_getppid]\n")
    assert "the guest's kernel has no such system call" in str(outcomes["none/noop/__ia32_sys_getppid"])


# --- other points ---------------------------------------------------------------------------------


def test_several_points_inside_the_kernel(measured: Callable[[str], Outcomes]) -> None:
    """Other processes hit the same point: their hits are counted separately."""
    points = ("vfs_read", "vfs_read+0x1")
    outcomes = measured(f"points: [{', '.join(points)}]\nprobes: [kprobe, kprobe-optimized]\n{READING}")
    for point in points:
        for probe in ("kprobe", "kprobe-optimized"):
            evidence = ok(outcomes[f"{probe}/noop/{point}"]).evidence
            assert evidence is not None
            assert evidence.symbol == point
            assert evidence.hits == 1000
            assert evidence.others
    plain, inside = (ok(outcomes[f"kprobe/noop/{point}"]).evidence for point in ("vfs_read", "vfs_read+0x1"))
    assert plain is not None
    assert inside is not None
    assert int(inside.address, 16) == int(plain.address, 16) + 1


def test_recording_at_a_point_that_other_processes_hit(measured: Callable[[str], Outcomes]) -> None:
    outcomes = measured(f"points: [vfs_read]\nprobes: [jprobe, djprobe]\nhandlers: [record]\n{READING}")
    for probe in ("jprobe", "djprobe"):
        evidence = ok(outcomes[f"{probe}/record/vfs_read"]).evidence
        assert evidence is not None
        assert (evidence.hits, evidence.recorded) == (1000, 1000)


@pytest.mark.parametrize(
    ("point", "probe", "complaint"),
    [
        ("vfs_read+0x1", "djprobe", "a djprobe is at the function's entry, at +0x0"),
        ("vfs_read+0x1", "jprobe", "a jprobe is at a function's entry"),
        ("__ia32_sys_getppid", "kprobe", "1000 calls were made and the probe's handler ran 0 times"),
    ],
)
def test_an_invalid_point_has_a_reason(
    measured: Callable[[str], Outcomes], point: str, probe: str, complaint: str
) -> None:
    outcome = measured(f"points: [{point}]\nprobes: [{probe}]\n{READING}")[f"{probe}/noop/{point}"]
    assert complaint in str(outcome)


def test_a_tracepoint_is_at_no_point(measured: Callable[[str], Outcomes]) -> None:
    outcome = measured(f"points: [vfs_read]\nprobes: [tracepoint]\n{GETPPID}")["tracepoint/noop/vfs_read"]
    assert isinstance(outcome, CellRecord)
    assert (outcome.status, outcome.reason) == ("unsupported", "it is where the kernel has it, and at no other point")


# --- a user's workload ----------------------------------------------------------------------------


def test_a_call_that_hits_twice_has_a_hint(measured: Callable[[str], Outcomes]) -> None:
    text = "points: [__ia32_sys_getppid]\nprobes: [djprobe]\n"
    text += f"benchmark: {{name: workload, file: {WORKLOADS / 'getting.c'}, calls: 100, repeats: 2, hits: %d}}\n"
    once, twice = (measured(text % hits)["djprobe/noop/__ia32_sys_getppid"] for hits in (1, 2))
    assert "1000 calls were made and the probe's handler ran 2000 times\nhint: if each call enters it 2" in str(once)
    evidence = ok(twice).evidence
    assert evidence is not None
    assert (evidence.hits, evidence.calls, evidence.hits_per_call) == (2000, 1000, 2)


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
    failing = measured(text.replace("none, kprobe, ", "") + benchmark.replace("hits", "arguments: ['3'], hits"))
    assert "whole did not run to its end" in str(failing["djprobe/noop/__ia32_sys_getppid"])
    assert "ended with status 3" in str(failing["djprobe/noop/__ia32_sys_getppid"])


# --- a user's module ------------------------------------------------------------------------------


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


def test_a_user_s_module_is_loaded_with_its_parameters(measured: Callable[[str], Outcomes], folder: Path) -> None:
    """The handler's loop takes instructions for each turn; quotes and spaces reach the kernel."""
    probes = ["./looping.c", "./looping.c turns=7", "./looping.c turns=9 'label=two words'", "./looping.c label=other"]
    outcomes = measured(f"probes: {json.dumps([*probes, './looping.c turn=7'])}\n{GETPPID}")
    plain, seven, nine, refused, wrong = (outcomes[name] for name in outcomes if name.startswith("looping.c"))
    costs = [ok(cell).value or 0 for cell in (plain, seven, nine)]
    assert 0 < costs[0] < costs[1] < costs[2]
    assert list(outcomes)[:2] == ["looping.c/noop", "looping.c.turns-7/noop"]
    assert ok(nine).parameters["module_parameters"] == "turns=9 'label=two words'"
    assert "loaded with turns=7" in ok(seven).notes
    assert "module own_looping was not accepted by the guest's kernel" in str(refused)
    assert isinstance(wrong, CellRecord)
    assert wrong.reason is not None
    assert "unknown parameter 'turn'; allowed: " in wrong.reason
    assert "did you mean 'turns'?" in wrong.reason


def test_a_module_without_evidence_has_no_number(measured: Callable[[str], Outcomes]) -> None:
    outcome = measured("probes: [./silent.c]\n" + GETPPID)["silent.c/noop"]
    assert "module own_silent has no parameter hits: nothing proves that its probe was hit" in str(outcome)


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
