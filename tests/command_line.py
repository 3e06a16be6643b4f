# SPDX-License-Identifier: GPL-2.0-only
"""The command line as a user has it, in a lab of its own: called in this process, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from printed_json import check_printed
from typer.testing import CliRunner

from orchestrator.cli.main import app
from orchestrator.paths import data_dir
from orchestrator.results.contract import CellRecord, RunRecord

_APART = {("bisect",), ("fleet", "up"), ("fleet", "worker"), ("nightly",)}
"""Commands that leave processes behind, or change what is this process's own."""

_AT_START = {"PATH", "PYTHONPATH"}
"""Variables that count when a program starts; the others are looked up when they are needed."""

PATIENCE = 600.0
"""Host seconds, for a host that is very busy."""

QUICKSTART = data_dir("configs") / "quickstart.yaml"
REDUCED = ("--set", "benchmark.repeats=2", "--set", "benchmark.calls=1000")
_LIMIT = 3600.0
"""Seconds for a command that may build a kernel first: five minutes on two idle cores, 18 were seen on a busy host."""


def objects(answer: str) -> Any:
    """What a command has printed as JSON, with its keys as attributes."""
    return json.loads(answer, object_hook=lambda keys: SimpleNamespace(**keys))


@dataclass(frozen=True)
class CommandLine:
    """Runs ``orchestrator`` with its results below ``lab``; the cache is the user's."""

    lab: Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in this process: to start Python and to import the lab takes 0.6 s of a processor.

        Where its environment counts from the start it has a process of its own.
        """
        words = {tuple(map(str, arguments[:count])) for count in (1, 2)}
        if words & _APART or self.environment.keys() & _AT_START:
            return self.run_apart(*arguments)
        return self.refused(*arguments)

    def refused(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command that ends before it starts anything, in this process."""
        # Python looks TMPDIR up once.
        with patch.dict(os.environ, self._environment()), patch("tempfile.tempdir", None):
            done = CliRunner().invoke(app, [str(word) for word in arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        check_printed(list(map(str, arguments)), done.stdout)
        return subprocess.CompletedProcess(list(map(str, arguments)), done.exit_code, done.stdout, done.stderr)

    def run_apart(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in a process of its own."""
        done = subprocess.run(
            self._argv(arguments), env=self._environment(), capture_output=True, text=True, timeout=_LIMIT, check=False
        )
        check_printed(list(map(str, arguments)), done.stdout)
        return done

    def start(self, *arguments: str | Path, stderr: int) -> subprocess.Popen[str]:
        """Start a command; its stderr goes to the descriptor given."""
        return subprocess.Popen(
            self._argv(arguments), env=self._environment(), stdout=subprocess.PIPE, stderr=stderr, text=True
        )

    def cells(self, run: str | Path = "latest") -> dict[str, CellRecord]:
        """A run's cells by probe, as ``report --format json`` has them, checked against the contract."""
        answer = self.run("report", run, "--format", "json")
        return {cell.probe: cell for cell in RunRecord.model_validate_json(answer.stdout, strict=False).cells}

    def qemus(self) -> list[str]:
        """The command lines of the QEMUs that write a console's log into this lab."""
        return qemus_in(self.lab)

    def qemus_after(self, seconds: float = PATIENCE) -> list[str]:
        """Those that are left when all could have ended: as soon as there are none, at most ``seconds`` later."""
        deadline = time.monotonic() + seconds
        while (left := self.qemus()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def _argv(self, arguments: tuple[str | Path, ...]) -> list[str]:
        # With -P the package is looked for where it is installed, or in PYTHONPATH, not in the current directory.
        return [sys.executable, "-P", "-c", "from orchestrator.cli.main import main; main()", *map(str, arguments)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "ORCHESTRATOR_LAB": str(self.lab), "COLUMNS": "100", **self.environment}


@dataclass(frozen=True)
class FinishedRun:
    """A run that has ended: where it was made, its directory, and how the command ended."""

    command: CommandLine
    directory: Path
    process: subprocess.CompletedProcess[str]

    def cells(self) -> dict[str, CellRecord]:
        """Its cells by probe."""
        return self.command.cells(self.directory)


def qemus_in(directory: Path) -> list[str]:
    """The command lines of the QEMUs that write their console's log below ``directory``."""
    return list(qemus_by_pid(directory).values())


def qemus_by_pid(directory: Path) -> dict[int, str]:
    """The same by process number."""
    found = {}
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended
            continue
        if "qemu-system" in words[0] and any(str(directory) in word for word in words):
            found[int(file.parent.name)] = " ".join(words)
    return found
