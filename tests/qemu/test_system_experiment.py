# SPDX-License-Identifier: GPL-2.0-only
"""Is a whole-system workload measured with and without what is beside it, and compared with itself first?"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import CommandLine, FinishedRun

from orchestrator.paths import data_dir
from orchestrator.results.contract import CellRecord, RunRecord, WorkEvidence

pytestmark = pytest.mark.qemu

CONFIGS = data_dir("configs")
MODULES = Path(__file__).with_name("modules")
PACKETS = 200
TICKING = "symbol=icmp_rcv"
FLOOD = f"""\
name: flood
kernels: [lab-i386-up]
machines: [{{cpu: pentium4}}]
benchmark: {{name: ping-flood, packets: {PACKETS}, repeats: 3}}
"""


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    """The command line with a lab of the test's own."""
    return CommandLine(tmp_path / "lab")


def write(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text)
    return path


def records(command: CommandLine) -> list[CellRecord]:
    answer = command.run("report", "latest", "--format", "json")
    return list(RunRecord.model_validate_json(answer.stdout).cells)


def proof(cell: CellRecord) -> WorkEvidence:
    assert cell.status == "ok", cell.reason
    assert cell.work is not None
    return cell.work


ROWS = {
    "none": "none",
    "none/again1": "",
    "idle.c": "./idle.c",
    "ticking.c.symbol-icmp_rcv": f"./ticking.c {TICKING}",
    "broken.c": "./broken.c",
    "hook": "hook",
    "djprobe": "djprobe",
    "kprobe": "kprobe",
}
"""What stands beside the flood, by the cells' names; the baseline is booted again without being asked for."""
SOME_ROWS = tuple(name for name in ROWS if name not in ("idle.c", "broken.c", "kprobe"))
MORE_BOOTS = pytest.mark.nightly("a module that does nothing, a broken one, and kprobes: three boots more")


@pytest.fixture(scope="module", params=[SOME_ROWS, pytest.param(tuple(ROWS), marks=MORE_BOOTS)], ids=["some", "all"])
def flooded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FinishedRun:
    """A run in which pings flood beside modules of the user's, a hook that the kernel lacks, and standard events."""
    folder = tmp_path_factory.mktemp("flood")
    for name in ("idle.c", "ticking.c", "broken.c"):
        shutil.copy(MODULES / name, folder)
    config = write(folder, f"{FLOOD}probes: [{', '.join(filter(None, map(ROWS.get, request.param)))}]\n")
    command = CommandLine(folder / "lab")
    return FinishedRun(command, folder, command.run("run", config, "--jobs", "2"))


def by_row(run: FinishedRun) -> dict[str, CellRecord]:
    return {cell.id.removeprefix("pentium4+512M/lab-i386-up/"): cell for cell in records(run.command)}


def test_the_same_boot_again_is_the_same_and_a_module_shows(flooded: FinishedRun) -> None:
    assert flooded.process.returncode == int("broken.c" in by_row(flooded)), flooded.process.stderr
    first = by_row(flooded)
    assert tuple(first) in (SOME_ROWS, tuple(ROWS))
    base, again = first["none"], first["none/again1"]
    assert (proof(base).mechanism, proof(base).done, proof(base).runs) == ("none", PACKETS, 4)
    assert (base.overhead, len(base.samples), base.unit) == (0.0, 3, "instructions")
    assert base.value is not None
    assert again.overhead is not None
    assert abs(again.overhead) < 0.005 * base.value  # the same work, in other circumstances
    assert base.parameters["packets"] == PACKETS
    assert base.text is not None
    assert (base.text.modules, base.text.patched) == ((), None)
    # It switched none but what it does in any cell: the clock's key is of the boot.
    assert {branch.key for branch in base.text.switched} <= {"crng_is_ready", "__use_tsc"}
    # A kprobe at every packet shows; a module that does nothing may or may not be resolved.
    ticking = first["ticking.c.symbol-icmp_rcv"]
    assert ticking.parameters["module_parameters"] == TICKING
    assert f"loaded with {TICKING}" in ticking.notes
    assert ticking.overhead is not None
    assert ticking.overhead > PACKETS * 2 * 50
    assert ticking.verdict is None
    assert proof(ticking).mechanism == "module"
    idle = first.get("idle.c")
    if idle is not None:
        assert idle.overhead is not None
        assert abs(idle.overhead) < 0.1 * ticking.overhead
    broken = first.get("broken.c")
    if broken is not None:
        assert broken.status == "failed"
        assert "cannot load the module" in str(broken.reason)
        assert "there is nothing to look at" in str(broken.reason)
    assert first["hook"].status == "unsupported"
    assert "such as lab-i386-up-markers" in str(first["hook"].reason)
    printed = flooded.command.run("report", "latest").stdout
    assert "A/A: the baseline booted again" in printed
    assert "+-: the limit that a difference has to exceed to count" in printed
    assert not flooded.command.qemus()


def test_the_standard_events_are_recorded_while_pings_flood(flooded: FinishedRun) -> None:
    cells = by_row(flooded)
    djprobe, kprobe = cells["djprobe"], cells.get("kprobe")
    assert djprobe.overhead is not None
    assert djprobe.overhead > 0
    check_recorded(djprobe)
    assert float(djprobe.parameters["events_a_run"]) > PACKETS
    for event in ("process_exec", "process_fork", "process_exit"):
        assert int(djprobe.parameters[f"recorded_{event}"]) > 0
    if kprobe is None:
        return
    check_recorded(kprobe)
    assert kprobe.overhead is not None
    assert kprobe.overhead > 3 * djprobe.overhead
    for event in ("process_exec", "process_fork", "process_exit"):
        assert djprobe.parameters[f"recorded_{event}"] == kprobe.parameters[f"recorded_{event}"]


@pytest.mark.kernels("lab-i386-smp-preempt", "lab-i386-smp-preempt-markers")
def test_markers_without_a_probe_cost_a_flood_little(command: CommandLine) -> None:
    small = ("--only", "ping-flood", "--set", "tables.ping-flood.benchmark.packets=500")
    finished = command.run("run", CONFIGS / "markers-2006-macro.yaml", *small, "--jobs", "2")
    assert finished.returncode == 0, finished.stderr
    plain, again, marked = records(command)
    assert (plain.kernel, marked.kernel) == ("lab-i386-smp-preempt", "lab-i386-smp-preempt-markers")
    assert plain.value is not None
    assert marked.overhead is not None
    assert abs(marked.overhead) < 0.01 * plain.value  # two boots of the same differ by as much as the markers cost
    assert proof(again).done == proof(marked).done == 500
    assert plain.reference is not None
    assert plain.reference.value == 10.84
    assert marked.reference is not None
    assert marked.reference.overhead == pytest.approx(0.004, abs=0.001)
    printed = command.run("report", "latest").stdout
    assert "published, markers (s)" in printed
    assert "12596" in printed  # packets a second


def check_recorded(cell: CellRecord) -> None:
    work, parameters = proof(cell), cell.parameters
    assert work.lost == 0
    assert work.restored
    assert work.recorded == sum(int(parameters[key]) for key in parameters if key.startswith("recorded_"))


@pytest.mark.nightly("compiles in six boots, a minute and a half of CPU; while pings flood it is done every day")
@pytest.mark.kernels("lab-i386-up-markers")
@pytest.mark.prepared_build
def test_the_standard_events_are_recorded_while_a_kernel_is_compiled(command: CommandLine) -> None:
    small = ("--set", "benchmark.scope=sample", "--set", "benchmark.repeats=1")
    probes = ("--set", "probes=[none,hook,djprobe,kprobe]")
    finished = command.run("run", CONFIGS / "lkst-events-2005.yaml", *small, *probes, "--jobs", "2")
    assert finished.returncode == 0, finished.stderr
    everything = records(command)
    cells = {cell.probe: cell for cell in reversed(everything) if not cell.parameters.get("again")}
    assert set(cells) == {"none", "hook", "djprobe", "kprobe"}
    assert cells["none"].kernel == "lab-i386-up"
    assert [cell.kernel for cell in everything if cell.probe == "none"][2:] == ["lab-i386-up-markers"]
    assert len({(proof(cell).done, proof(cell).digest) for cell in cells.values()}) == 1
    overheads = [cells[name].overhead or 0 for name in ("hook", "djprobe", "kprobe")]
    assert overheads == sorted(overheads)
    assert overheads[0] > 0
    base = cells["none"].value
    assert base is not None
    # The claim of 2005, on this clock: what jumps is of the order of what is compiled in; what traps is not.
    assert overheads[1] < 3 * overheads[0]
    assert overheads[2] > 5 * overheads[0]
    for name in ("hook", "djprobe", "kprobe"):
        check_recorded(cells[name])
        assert 50_000 < float(cells[name].parameters["events_a_run"]) < 500_000
    # The same work opens the same files and runs the same programs, whatever records them.
    for event in ("file_open", "process_exec", "process_fork", "process_exit"):
        counts = {cells[name].parameters[f"recorded_{event}"] for name in ("djprobe", "kprobe", "hook")}
        assert len(counts) == 1, (event, counts)
