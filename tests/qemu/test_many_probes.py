# SPDX-License-Identifier: GPL-2.0-only
"""Do thousands of kprobes, and the model of their cache, come to the same in two runs, and to what they should?"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import CommandLine, qemus_by_pid
from module_maker import ModuleMaker

from orchestrator.benchmarks.registry import reports
from orchestrator.benchmarks.scaling.scaling_cells import ScalingCells, row_of
from orchestrator.errors import GuestError
from orchestrator.paths import data_dir
from orchestrator.probes.loading import load
from orchestrator.report.table_report import cell_groups
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.statistics import growth
from orchestrator.run.ready_guest import ReadyGuest

pytestmark = pytest.mark.qemu

CONFIG = data_dir("configs") / "kpcache-2014.yaml"
ONE_TABLE = """\
name: many
kernels: [lab-i386-up]
machines: [{cpu: pentium4}]
probes: [none, kpcache.register, kpcache.enable, kpcache.disable, kpcache.unregister, kpcache.hit-alone,
  kpcache.hit-first, kpcache.hit]
benchmark: {name: kpcache, sizes: [100]}
"""


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    """The command line with a lab of the test's own."""
    return CommandLine(tmp_path / "lab")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """The smallest experiment of many kprobes."""
    path = tmp_path / "many.yaml"
    path.write_text(ONE_TABLE)
    return path


def records(command: CommandLine, run: str | Path = "latest") -> list[CellRecord]:
    answer = command.run("report", run, "--format", "json")
    return list(RunRecord.model_validate_json(answer.stdout).cells)


def by_row(cells: list[CellRecord]) -> dict[str, CellRecord]:
    return {row_of(cell): cell for cell in cells}


RUNS = pytest.mark.parametrize(
    "times", [1, pytest.param(2, marks=pytest.mark.nightly("the same in a second run: 3 s"))]
)


@pytest.mark.kernels("lab-i386-up")
@RUNS
def test_every_step_is_the_same_in_each_run(command: CommandLine, many: Path, times: int) -> None:
    runs = []
    for _ in range(times):
        finished = command.run("run", many)
        assert finished.returncode == 0, finished.stderr
        runs.append(records(command))
    first = runs[0]
    samples = [[(cell.id, cell.samples) for cell in run] for run in runs]
    assert samples == [samples[0]] * times
    rows = by_row(first)
    assert len(rows["register"].samples) == len(rows["enable"].samples) == 10
    for cell in first:
        assert cell.status == "ok"
        assert cell.evidence is not None
        assert cell.evidence.mechanism == ("none" if row_of(cell) == "none" else "int3")
    # Registering finds its function among all of the kernel's; enabling writes one byte.
    assert min(rows["register"].samples) > 100 * max(rows["enable"].samples)
    assert rows["hit"].overhead is not None
    assert 250 < rows["hit"].overhead < 450
    assert not command.qemus()


@pytest.mark.kernels("lab-i386-smp-hash6", "lab-i386-smp-hash12", "lab-i386-smp-kpcache")
def test_the_hash_and_the_cache_are_two_effects(command: CommandLine) -> None:
    sizes = ("--set", "tables.kernels.benchmark.sizes=[100,600]", "--set", "tables.hash6.benchmark.sizes=[100,600]")
    finished = command.run("run", CONFIG, "--only", "kernels", "--only", "hash6", *sizes, "--jobs", "2")
    assert finished.returncode == 0, finished.stderr
    run = RunRecord(run="r", experiment="e", cells=tuple(records(command)))
    table = ScalingCells.of(cell_groups(run, reports()))
    assert table.kernels == ["lab-i386-smp-hash6", "lab-i386-smp-hash12", "lab-i386-smp-kpcache"]

    def hit(kernel: str, row: str, size: int) -> float:
        cell = table.cell(f"lab-i386-smp-{kernel}", row, size)
        assert cell is not None
        assert cell.overhead is not None
        return cell.overhead

    # In 64 lists a hit gets dearer with every probe; in 4096 it hardly does.
    assert hit("hash6", "hit", 600) > hit("hash6", "hit", 100) + 20
    assert hit("hash12", "hit", 600) < hit("hash12", "hit", 100) + 5
    # A hit that is in the cache does not search the list, and the first one fills it.
    assert hit("kpcache", "hit", 600) == pytest.approx(hit("kpcache", "hit", 100), abs=1)
    assert hit("kpcache", "hit-first", 600) > hit("kpcache", "hit", 600) + 10
    assert hit("hash12", "hit-first", 600) == pytest.approx(hit("hash12", "hit", 600), abs=1)
    for kernel in table.kernels[1:]:
        found = growth(table.totals(kernel, "register"))
        by_steps = table.growth_by_steps(kernel, "register")
        assert found is not None
        assert by_steps is not None
        assert max(found.exponent, by_steps.exponent) <= 1.1
    for text in ("exponent, by the number", "the cache, among 600", "more lists, among 600"):
        assert text in finished.stdout


@pytest.mark.parametrize(
    ("kernel", "cpu", "mechanism", "cache_bytes"),
    [
        pytest.param("lab-i386-up-ftrace", "pentium4", "ftrace", None, marks=pytest.mark.kernels("lab-i386-up-ftrace")),
        pytest.param(
            "lab-x86_64-smp-kpcache",
            "xeon-e5410",
            "int3",
            272 * 1024 + 8,
            marks=pytest.mark.kernels("lab-x86_64-smp-kpcache"),
        ),
        pytest.param(
            "lab-i386-smp-kpcache",
            "pentium4",
            "int3",
            144 * 1024 + 4,
            marks=pytest.mark.kernels("lab-i386-smp-kpcache"),
        ),
    ],
)
def test_other_kernels_have_them_too(
    command: CommandLine, many: Path, kernel: str, cpu: str, mechanism: str, cache_bytes: int | None
) -> None:
    finished = command.run("run", many, "--set", f"kernels=[{kernel}]", "--set", f"machines.0.cpu={cpu}")
    assert finished.returncode == 0, finished.stderr
    rows = by_row(records(command))
    assert rows["hit"].evidence is not None
    assert rows["hit"].evidence.mechanism == mechanism
    # The document has 272 KiB a CPU, on 64 bits; the flag against NMIs is padded to a word.
    assert rows["hit"].parameters.get("cache_bytes") == cache_bytes


@pytest.mark.kernels("lab-i386-up")
@RUNS
def test_events_of_tracefs_come_to_the_same_in_each_run(command: CommandLine, tmp_path: Path, times: int) -> None:
    path = tmp_path / "events.yaml"
    rows = ", ".join(f"kpcache-events.{row}" for row in ("define", "enable", "disable"))
    path.write_text(
        "name: events\nkernels: [lab-i386-up]\nmachines: [{cpu: pentium4}]\n"
        f"probes: [none, {rows}]\nbenchmark: {{name: kpcache-events, sizes: [100]}}\n"
    )
    runs = []
    for _ in range(times):
        finished = command.run("run", path)
        assert finished.returncode == 0, finished.stderr
        runs.append([(cell.id, cell.samples, cell.evidence) for cell in records(command)])
    assert runs == [runs[0]] * times
    _, _, proof = runs[0][-1]
    assert proof is not None
    assert (proof.mechanism, proof.hits, proof.calls) == ("int3", 100, 100)


@pytest.mark.kernels("lab-i386-up")
def test_a_guest_that_is_killed_is_reported_with_how_far_it_had_got(command: CommandLine, many: Path) -> None:
    process = command.start("run", many, "--set", "benchmark.sizes=[2000]", stderr=subprocess.PIPE)
    with process:
        log = None
        while process.poll() is None:
            log = next(iter(command.lab.rglob("*.console")), None)
            # The end of the line too: the lab hears whole lines, and QEMU prints byte by byte.
            if log is not None and "register: 200 of 2000 kprobes\n" in log.read_text():
                break
            time.sleep(0.02)
        assert log is not None
        (qemu,) = qemus_by_pid(log)
        os.kill(qemu, signal.SIGKILL)
        process.communicate(timeout=600)
    assert process.returncode == 1
    cells = records(command)
    assert {cell.status for cell in cells} == {"failed"}
    for cell in cells:
        assert cell.reason is not None
        assert "signal 9" in cell.reason
        assert "the work had reached: register: " in cell.reason


@pytest.mark.kernels("lab-i386-up")
def test_more_probes_than_the_kernel_has_functions_are_unsupported(command: CommandLine, many: Path) -> None:
    finished = command.run("run", many, "--set", "benchmark.sizes=[50000]")
    assert finished.returncode == 1
    (reason,) = {cell.reason for cell in records(command)}
    assert reason is not None
    assert "functions that take a kprobe, not 50000" in reason


@pytest.mark.nightly("what the driver refuses: five seconds")
@pytest.mark.kernels("lab-i386-up")
@pytest.mark.guest(kernel="lab-i386-up", cpu="pentium4", timing="instructions")
def test_the_driver_refuses_what_makes_no_sense_and_cleans_up(ready: ReadyGuest, modules: ModuleMaker) -> None:
    guest, module = ready.guest, modules.rendered("kpcache_driver", {})
    load(guest, module.name, module.file)
    sites, do = f"/sys/kernel/debug/{module.name}/sites", f"/sys/module/{module.name}/parameters/do"
    try:
        for wrong in (
            "register 1",
            "enable 1",
            "disable 1",
            "unregister 1",
            "targets 1",
            "sieve 2",
            "call 0",
            "total 0",
        ):
            with pytest.raises(GuestError, match="invalid argument"):
                guest.put(wrong.encode(), do)
        with pytest.raises(GuestError, match="out of range"):
            guest.put((0x1000).to_bytes(4, "little"), sites)
        place = ready.symbols.address("vfs_fsync_range")
        guest.put(place.to_bytes(4, "little"), sites)
        before = guest.read_memory(place, 1)
        guest.put(b"total 1", do)
        guest.put(b"register 1", do)
        with pytest.raises(GuestError):
            guest.put(b"register 1", do)
        guest.put(b"sieve 0", do)
        guest.put(b"enable 1", do)
        assert guest.read_memory(place, 1) != before
    finally:
        guest.succeed(["rmmod", module.name])  # with a kprobe still enabled
    guest.succeed(["sleep", "1"])  # the optimizer takes its jump back when it gets to it
    assert guest.read_memory(place, 1) == before
    assert guest.get("/sys/kernel/debug/kprobes/list") == b""
