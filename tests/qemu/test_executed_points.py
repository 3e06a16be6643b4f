# SPDX-License-Identifier: GPL-2.0-only
"""Is each function probed that calls enter, as often as they enter it, and are the others listed with the reason?"""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.results.contract import CellRecord, RunRecord

KERNEL = "lab-i386-up"
WORKLOADS = Path(__file__).with_name("workloads")
NOINSTR = "it is noinstr: no trap may happen there"

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]


def experiment(folder: Path, kernel: str = KERNEL, cpu: str = "pentium4", **keys: str) -> Path:
    """An experiment that probes what gettimeofday enters, with keys as YAML."""
    lines = {
        "name": "executed",
        "kernels": f"[{kernel}]",
        "machines": f"[{{cpu: {cpu}}}]",
        "points": "executed",
        "probes": "[none, kprobe, djprobe]",
        "benchmark": "{name: gtodbench, calls: 100, repeats: 2}",
        **keys,
    }
    file = folder / "executed.yaml"
    file.write_text("".join(f"{key}: {value}\n" for key, value in lines.items()))
    return file


def only(*points: str) -> list[str]:
    """Options that select these functions."""
    return [word for point in points for word in ("--only", f"point={point}")]


def measured(command: CommandLine, *arguments: str | Path) -> dict[tuple[str, str], CellRecord]:
    """Run an experiment, none of whose cells fails: the records by function and probe."""
    finished = command.run("run", *arguments)
    assert finished.returncode == 0, finished.stderr
    return records(command)


def records(command: CommandLine) -> dict[tuple[str, str], CellRecord]:
    answer = command.run("report", "latest", "--format", "json")
    cells = RunRecord.model_validate_json(answer.stdout, strict=False).cells
    return {(str(cell.parameters.get("at")), cell.probe): cell for cell in cells}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which what gettimeofday enters was measured."""
    folder = tmp_path_factory.mktemp("executed")
    done = CommandLine(folder).run("run", experiment(folder, probes="[none, kprobe]"), "--jobs", "2")
    assert done.returncode == 0, done.stderr
    return folder


def test_every_function_that_a_call_enters_is_probed_or_listed(lab: Path) -> None:
    command = CommandLine(lab)
    cells = records(command)
    for at in ("__ia32_sys_gettimeofday", "ktime_get_real_ts64", "read_tsc"):
        assert (cells[at, "none"].value, cells[at, "kprobe"].status) == (360, "ok")
    assert cells["__ia32_sys_gettimeofday", "kprobe"].value == 889
    # It copies seconds and microseconds, each with one call.
    twice = cells["__put_user_4", "kprobe"]
    assert twice.evidence is not None
    assert (twice.evidence.hits_per_call, twice.evidence.hits) == (2, 2000)
    refused = {at: cell.reason for (at, _), cell in cells.items() if cell.status == "unsupported"}
    assert refused["__do_fast_syscall_32"] == NOINSTR
    assert str(refused["entry_SYSENTER_32"]).startswith("it is entry code")
    assert "it is at every" not in str(refused)
    printed = command.run("report", "latest").stdout
    assert "at each function" in printed
    assert "ktime_get_real_ts64" in printed
    # Nothing is lost: as many functions as the profile has.
    (lab / "profile").mkdir()
    profiled = experiment(lab / "profile", points="[ktime_get_real_ts64]", probes="[none]", profile="[symbols]")
    assert command.run("run", profiled).returncode == 0
    table = command.run("profile", "latest", "none", "--format", "json").stdout
    for at, _ in cells:
        assert f'"name": "{at}"' in table
    assert table.count('"place": "kernel"') == len({at for at, _ in cells})


def test_the_plan_of_found_points(lab: Path) -> None:
    """Once they were found, the plan has them, without a guest."""
    command, file = CommandLine(lab), lab / "executed.yaml"
    planned = command.run("run", file, "--dry-run")
    assert "/kprobe/noop/read_tsc  gtodbench: 2 x 100 calls" in planned.stdout
    assert f"unsupported: {NOINSTR}" in planned.stdout
    assert command.run("run", file, "--only", "point=vfs_read").returncode == 2


@pytest.mark.nightly("five seconds; test_interruption.py goes on with a stopped run every day")
def test_a_run_that_was_stopped_goes_on_with_the_same_points(tmp_path: Path) -> None:
    # The cells behind the one that is waited for take seconds: some are left on a host that delivers a signal late.
    file = experiment(tmp_path, benchmark="{name: gtodbench, calls: 2000, repeats: 2}")
    command = CommandLine(tmp_path)
    some = only("ktime_get_real_ts64", "read_tsc")
    process = command.start("run", file, *some, stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if "/none/noop/ktime_get_real_ts64: 360" in line:
                process.send_signal(signal.SIGINT)
                break
        process.communicate()
    assert process.returncode == 130
    begun = set(records(command))
    finished = command.run("run", file, *some, "--resume")
    assert finished.returncode == 0, finished.stderr
    cells = records(command)
    assert begun < set(cells)
    assert cells["read_tsc", "djprobe"].value == 399
    assert [cell for cell in cells.values() if cell.status not in ("ok", "unsupported")] == []


@pytest.mark.kernels("lab-x86_64-smp")
def test_a_place_that_takes_no_probe_of_a_kind_is_unsupported(tmp_path: Path) -> None:
    """The kernel optimises no kprobe there, or boosts none: it stays an int3, which costs no guest."""
    probes = "[none, kprobe-optimized, kretprobe-boosted]"
    file = experiment(tmp_path, "lab-x86_64-smp", "xeon-e5410", probes=probes)
    command = CommandLine(tmp_path)
    cells = measured(command, file, *only("x64_sys_call", "read_tsc", "ktime_get_real_ts64"))
    reason = cells["x64_sys_call", "kprobe-optimized"].reason or ""
    assert "is not armed by the kernel's jump optimisation" in reason
    assert "must be boosted" in (cells["read_tsc", "kretprobe-boosted"].reason or "")
    assert cells["ktime_get_real_ts64", "kprobe-optimized"].status == "ok"
    (directory,) = (tmp_path / "runs").iterdir()
    assert len(list(directory.glob("boot1/guest*.console"))) == 1


def test_the_functions_that_a_workload_enters(tmp_path: Path) -> None:
    benchmark = f"{{name: workload, file: {WORKLOADS / 'reading.c'}, calls: 100, repeats: 2}}"
    file = experiment(tmp_path, probes="[none, kprobe]", benchmark=benchmark)
    cells = measured(CommandLine(tmp_path), file, *only("__ia32_sys_read"))
    assert cells["__ia32_sys_read", "kprobe"].overhead == 529


def test_a_workload_that_never_enters_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "idle.c").write_text('#include "workload.h"\nvoid workload(void)\n{\n}\n')
    benchmark = "{name: workload, file: idle.c, calls: 100, repeats: 2}"
    finished = CommandLine(tmp_path).run("run", experiment(tmp_path, benchmark=benchmark))
    assert finished.returncode == 2
    assert "enter no function" in finished.stderr


@pytest.mark.kernels("lab-i386-smp")
def test_the_same_functions_on_two_kernels(tmp_path: Path) -> None:
    """Each kernel's are found, and compared where both have the function."""
    file = experiment(tmp_path, probes="[none, kprobe]")
    arguments = ("--only", "point=read_tsc", "--format", "json")
    finished = CommandLine(tmp_path).run("diff", "--config", file, KERNEL, "lab-i386-smp", *arguments)
    assert finished.returncode == 0, finished.stderr
    cells = [load["before"]["cell"] for load in json.loads(finished.stdout)]
    assert cells == [f"pentium4/{KERNEL}/{probe}/noop/read_tsc" for probe in ("none", "kprobe")]
