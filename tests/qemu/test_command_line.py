# SPDX-License-Identifier: GPL-2.0-only
"""Does the command line do what it promises, from an experiment file to the table and the exit status?"""

from __future__ import annotations

import os
import pty
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import QUICKSTART, REDUCED, CommandLine, FinishedRun
from junitparser import TestSuite
from pseudo_terminals import PSEUDO_TERMINALS

from orchestrator.artifacts import module_source
from orchestrator.paths import data_dir

pytestmark = pytest.mark.qemu

PROBES = ["none", "kprobe", "jprobe", "djprobe"]
SMALLER_KERNEL = ("--set", "kernels=[lab-i386-up]")  # boots the quickest
BROKEN = Path(__file__).with_name("broken_templates")


# --- a run, and the reports of it -----------------------------------------------------------------


def test_a_run_prints_its_table_on_stdout_and_progress_on_stderr(undisturbed: FinishedRun) -> None:
    done = undisturbed.process
    assert done.returncode == 0, done.stderr
    assert "Overhead of probes on Intel Pentium 4" in done.stdout
    assert "gtodbench(sample2)" in done.stdout
    assert "published average(nsec)" in done.stdout
    assert "1000 hits = 1000 calls, bytes restored" in done.stdout
    progress = done.stderr.splitlines()
    assert [line.split(":")[0] for line in progress if line.startswith("[")] == [
        f"[{number}/4] pentium4/debian-686/{probe}/noop" for number, probe in enumerate(PROBES, start=1)
    ]
    assert progress[-1].endswith(f": {undisturbed.directory}")
    assert "\x1b" not in done.stdout + done.stderr
    assert undisturbed.command.qemus() == []


def test_reports_of_a_run_agree_with_what_it_printed(undisturbed: FinishedRun) -> None:
    table = undisturbed.command.run("report", undisturbed.directory)
    assert (table.returncode, table.stdout) == (0, undisturbed.process.stdout)
    cells = undisturbed.cells()
    assert list(cells) == PROBES
    baseline = cells["none"].value
    assert baseline is not None
    for probe, cell in cells.items():
        assert (cell.status, len(cell.samples), len(set(cell.samples))) == ("ok", 2, 1)
        assert cell.value is not None
        assert cell.overhead == cell.value - baseline
        assert cell.evidence is not None
        assert (cell.evidence.mechanism == "jmp") == (probe == "djprobe")
        assert cell.reference is not None
        assert cell.reference.table == "djprobe-2005/list5"


def test_a_runs_directory_holds_what_it_was_made_with(undisturbed: FinishedRun) -> None:
    kept = {path.name for path in undisturbed.directory.iterdir()}
    assert {"experiment.yaml", "provenance.json", "modules"} <= kept
    assert {path.name for path in (undisturbed.directory / "boot1").iterdir()} >= {
        f"guest1-pentium4-debian-686.{suffix}" for suffix in ("console", "qemu")
    }
    again = undisturbed.command.run("run", undisturbed.directory / "experiment.yaml", "--dry-run")
    assert again.returncode == 0
    assert [line.split()[0] for line in again.stdout.splitlines() if line.startswith("  ")] == [
        f"pentium4/debian-686/{probe}/noop" for probe in PROBES
    ]


def test_a_second_run_says_how_long_it_will_take(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    arguments = ("run", QUICKSTART, *REDUCED, *SMALLER_KERNEL, "--only", "probe=none")
    first, second = (command.run(*arguments).stderr for _ in range(2))
    assert " left" not in first
    assert re.search(r"^run \S+: 1 cell, about \d+ s left$", second, re.MULTILINE)


@pytest.mark.nightly("boots Debian's kernel: four seconds; a booted guest of another is compared every day")
def test_another_run_is_identical_cell_by_cell(undisturbed: FinishedRun, tmp_path: Path) -> None:
    """One whose guest was booted, against one whose guest was restored."""
    command = CommandLine(tmp_path)
    some = ("--only", "probe=none", "--only", "probe=kprobe")
    assert command.run("run", QUICKSTART, *REDUCED, *some, "--fresh").returncode == 0
    cells, other_cells = undisturbed.cells(), command.cells()
    assert set(other_cells) == {"none", "kprobe"}
    for probe, cell in other_cells.items():
        assert cell.samples == cells[probe].samples
        assert cell.overhead == cells[probe].overhead


# --- progress on a terminal -----------------------------------------------------------------------


def seen_on_terminal(command: CommandLine, *arguments: str | Path) -> tuple[int, str, str]:
    """A command's exit status, its stdout (a pipe), and what it wrote to the terminal that its stderr is."""
    screen, theirs = pty.openpty()
    with os.fdopen(screen, "rb", buffering=0) as terminal:
        process = command.start(*arguments, stderr=theirs)
        os.close(theirs)
        written = b""
        while block := _read(terminal.fileno()):
            written += block
        stdout, _ = process.communicate(timeout=600)
    return process.returncode, stdout, written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux's error when the other end is closed
        return b""


@PSEUDO_TERMINALS
@pytest.mark.kernels("lab-i386-up")
def test_progress_is_live_on_a_terminal(tmp_path: Path) -> None:
    arguments = ("run", QUICKSTART, *REDUCED, *SMALLER_KERNEL, "--only", "probe=none", "--fresh")
    status, stdout, screen = seen_on_terminal(CommandLine(tmp_path, {"TERM": "xterm"}), *arguments)
    assert status == 0
    assert "Overhead of probes on" in stdout
    assert "\x1b" not in stdout
    assert "starting lab-i386-up on pentium4" in screen
    assert re.search(r"\[ +\d+\.\d{6}\] ", screen), "a line of the console, while the guest boots"
    assert "boot1: " in screen, "a step"
    assert "measuring pentium4/lab-i386-up/none/noop" in screen
    assert "pentium4/lab-i386-up/none/noop: " in screen
    assert screen.count("\x1b[2K") > 5
    # The cursor that was hidden is shown again.
    assert screen.rindex("\x1b[?25h") > screen.rindex("\x1b[?25l")


# --- cells that fail ------------------------------------------------------------------------------


@pytest.fixture
def broken_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    """A lab whose jprobe does not compile and whose kprobe panics the guest: its modules' sources are a copy."""
    shutil.copytree(data_dir("kmods"), tmp_path / "copy" / "kmods")
    (tmp_path / "copy" / "images").symlink_to(data_dir("images"))
    for template in BROKEN.iterdir():
        shutil.copy(template, tmp_path / "copy" / "kmods" / "templates" / template.name)
    monkeypatch.setattr(module_source, "data_dir", (tmp_path / "copy").joinpath)
    pair = (module_source.module_folders, module_source.templates)
    for once in pair:
        once.cache_clear()
    yield CommandLine(tmp_path / "lab")
    for once in pair:
        once.cache_clear()


def test_broken_modules_cost_their_own_cells_only(broken_lab: CommandLine, tmp_path: Path) -> None:
    command = broken_lab
    run = command.run("run", QUICKSTART, *REDUCED, *SMALLER_KERNEL)
    assert run.returncode == 1, run.stderr
    cells = command.cells()
    assert {probe: cell.status for probe, cell in cells.items()} == {
        "none": "ok",
        "kprobe": "failed",
        "jprobe": "failed",
        "djprobe": "ok",
    }
    compiler = cells["jprobe"].reason or ""
    assert "module lab_jprobe does not build" in compiler
    assert "jprobe.c.j2:6: error: " in compiler
    assert "lab_has_no_such_function" in compiler
    kernel = cells["kprobe"].reason or ""
    assert "the guest's kernel panicked in lab_kprobe_init [lab_kprobe] while running insmod: only a test" in kernel
    assert "Kernel panic - not syncing: only a test" in kernel
    (summary,) = (line for line in run.stdout.splitlines() if line.startswith("- Failed: "))
    assert summary.startswith("- Failed: 2 of 4 cells, the first pentium4/lab-i386-up/kprobe/noop:")
    assert cells["djprobe"].evidence is not None
    junit = command.run("report", "latest", "--format", "junit")
    printed = {case.name: case.system_err for case in TestSuite.fromstring(junit.stdout)}
    # The trace of a panic is not equally long each time: its headline may stand before the last lines.
    (console,) = (tmp_path / "lab" / "runs").glob("*/boot1/guest1-*.console")
    assert printed[cells["kprobe"].id].splitlines()[-1] == console.read_text().splitlines()[-1].rstrip()
    assert "Kernel panic - not syncing: only a test" in console.read_text()
    assert printed[cells["jprobe"].id] is None, "no guest has seen it"
    assert command.qemus() == []


# --- one command in a guest -----------------------------------------------------------------------


def test_exec_loads_modules_runs_a_command_and_exits_as_it_does(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    built = command.run("kmod", "build", "kprobe", "--out", tmp_path)
    assert built.stdout == f"{tmp_path / 'lab_kprobe.ko'}\n"
    script = "cat /sys/module/lab_kprobe/parameters/hits; echo complaint >&2; exit 7"
    done = command.run(
        *("exec", "--module", tmp_path / "lab_kprobe.ko", "--console", tmp_path / "logs"),
        *("--accel", "tcg", "--verbose", "--", "sh", "-c", script),
    )
    assert (done.returncode, done.stdout) == (7, "0\n")
    assert "complaint\n" in done.stderr
    assert (tmp_path / "logs" / "guest.console").stat().st_size > 0
    steps = (tmp_path / "logs" / "lab.log").read_text()
    for text in ("restore guest on pentium4 (", "  put /tmp/lab_kprobe.ko (", " insmod /tmp/lab_kprobe.ko ("):
        assert text in steps
        assert text in done.stderr
    assert command.qemus() == []


# --- what is refused before anything boots --------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "sentences"),
    [
        ("machines.0.cpu=pentum4", ["machines.0.cpu: found 'pentum4'", "did you mean 'pentium4'?"]),
        ("probes=[none, djprob]", ["probes.1: found 'djprob'", "did you mean 'djprobe'?"]),
        ("kernels=[debian-868]", ["kernels.0: found 'debian-868'", "did you mean 'debian-686'?"]),
        ("clock=sundial", ["clock: found 'sundial'; allowed: instructions, wall"]),
        ("kernels=[debian-amd64]", ["kernel 'debian-amd64' is 64-bit and CPU 'pentium4' is 32-bit"]),
    ],
)
def test_unknown_names_are_bad_usage(tmp_path: Path, setting: str, sentences: list[str]) -> None:
    run = CommandLine(tmp_path / "lab").refused("run", QUICKSTART, "--set", setting)
    assert run.returncode == 2
    assert run.stdout == ""
    assert [sentence for sentence in sentences if sentence not in run.stderr] == []
    assert "Traceback" not in run.stderr


def test_exec_refuses_an_unknown_cpu_and_kernel(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    cpu = command.refused("exec", "--cpu", "athlon65", "--", "true")
    assert (cpu.returncode, "did you mean 'athlon64'?" in cpu.stderr) == (2, True)
    kernel = command.refused("exec", "--kernel", "debian-i686", "--", "true")
    assert (kernel.returncode, "did you mean 'debian-686'?" in kernel.stderr) == (2, True)


def test_offline_without_a_cache_reports_what_is_missing(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab", {"ORCHESTRATOR_CACHE": str(tmp_path / "empty")})
    run = command.run("run", QUICKSTART, "--offline")
    assert run.returncode == 3
    # On a host with another compiler than the guests', that is missing first.
    assert re.match(r"error: (linux-image-686|debian-686|compiler-[0-9.]+)\b", run.stderr), run.stderr
    assert f"not in the cache ({tmp_path / 'empty'})" in run.stderr
    assert "hint: run once without --offline" in run.stderr
    # What never began is no run.
    assert command.run("list", "runs").stdout.splitlines()[1:] == []
