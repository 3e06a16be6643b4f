# SPDX-License-Identifier: GPL-2.0-only
"""What a command takes until it says something: processor time, as a multiple of an empty Python's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from spent import spent_by

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.paths import data_dir

ROUNDS = 7
_MAIN = "from orchestrator.cli.main import main; main()"
_MOST_OF_HELP = 20
"""Starts of Python; help took 30 with rich's frames, and takes 9 without."""


def empty_python(folder: Path) -> float:
    return spent_by([sys.executable, "-c", "pass"], folder, {}).seconds


def least(work: Callable[[], float]) -> float:
    """The least of some rounds: whatever else the host does only adds to a time."""
    return min(work() for _ in range(ROUNDS))


def processor_seconds(pid: int) -> float:
    """What a process has used, and its children that have ended: not a guest that runs."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def until_first_cell(environment: Mapping[str, str]) -> float:
    """Processor seconds of ``run configs/quickstart.yaml`` up to its first cell's outcome."""
    argv = [sys.executable, "-c", _MAIN, "run", str(data_dir("configs") / "quickstart.yaml")]
    with subprocess.Popen(
        argv, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        first = next((line for line in process.stderr if line.startswith("[1/")), None)
        assert first is not None
        seconds = processor_seconds(process.pid)
        process.send_signal(signal.SIGINT)
        process.stderr.read()
    return seconds


def test_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    floor = least(lambda: empty_python(tmp_path))
    ratio = least(lambda: spent_by([sys.executable, "-c", _MAIN, "--help"], tmp_path, {}).seconds) / floor
    with capsys.disabled():
        print(f"\n--help: {ratio:.1f} starts of Python ({floor * 1e3:.0f} ms)")
    assert ratio < _MOST_OF_HELP


@pytest.mark.qemu
def test_the_way_to_the_first_cell(workshop: BuildContext, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second run and later ones: kernel, modules and saved guest are in the cache."""
    environment = {"ORCHESTRATOR_CACHE": str(workshop.cache.root), "ORCHESTRATOR_LAB": str(tmp_path)}
    until_first_cell(environment)
    floor = least(lambda: empty_python(tmp_path))
    ratio = least(lambda: until_first_cell(environment)) / floor
    with capsys.disabled():
        print(f"\nfirst cell: {ratio:.0f} starts of Python ({floor * 1e3:.0f} ms)")
