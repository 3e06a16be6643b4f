# SPDX-License-Identifier: GPL-2.0-only
"""What a test does to a fleet while a run goes on, and what it looks at."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from command_line import PATIENCE, CommandLine
from fleet_processes import family, of_process, worker_processes

from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.results.contract import CellRecord, RunRecord

MANY = """\
name: many
kernels: [lab-i386-up]
machines: [{cpu: pentium4}, {cpu: athlon}, {cpu: pentium-m}, {cpu: pentium4, memory: 512M}]
probes: [none, kprobe]
benchmark: {name: syscall, call: getppid, calls: 1000, repeats: 2}
"""
"""Four boots of two cells."""

MORE = MANY.replace(
    "memory: 512M}",
    "memory: 512M}, {cpu: athlon, memory: 512M}, {cpu: pentium-m, memory: 512M}, "
    "{cpu: pentium4, memory: 384M}, {cpu: athlon, memory: 384M}",
)
"""Twice as many: a worker that comes late still gets some."""

CELLS = 8
_LOOK = 0.02


@dataclass
class GoingOn:
    """A run as it goes on."""

    command: CommandLine
    process: subprocess.Popen[str]
    said: Path

    def reach(self, text: str) -> None:
        """Wait until the run has said something. Fails where it ends before."""
        while text not in self.said.read_text():
            assert self.process.poll() is None, self.said.read_text()
            time.sleep(_LOOK)

    def measures(self, found: Callable[[], Sequence[int]]) -> Sequence[int]:
        """Wait until something is there while the run goes on."""
        while not (there := found()):
            assert self.process.poll() is None, self.said.read_text()
            time.sleep(_LOOK)
        return there

    def end(self) -> int:
        """Its exit status."""
        status = self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.read()
        return status


@contextlib.contextmanager
def going_on(command: CommandLine, folder: Path, *arguments: str | Path, text: str = MANY) -> Iterator[GoingOn]:
    """A run of an experiment on a fleet, or however ``arguments`` say; it is over when the context is."""
    config, said = folder / "many.yaml", folder / f"said-{time.monotonic_ns()}"
    config.write_text(text)
    with said.open("w") as file, command.start("run", config, *arguments, stderr=file.fileno()) as process:
        try:
            yield GoingOn(command, process, said)
        finally:
            process.kill()


def measured_alone(folder: Path, text: str) -> dict[str, tuple[float, ...]]:
    """The samples of an experiment's cells in one process; on one of its CPUs, as a kernel executes the same on all."""
    command, config = CommandLine(folder / "lab"), folder / "many.yaml"
    config.write_text(text)
    done = command.run("run", config, "--set", "machines=[{cpu: pentium4}]")
    assert done.returncode == 0, done.stderr
    found = {cell.probe: tuple(cell.samples) for cell in records(command)}
    return {cell.id: found[cell.probe] for cell in plan(load_experiment(config, kinds())).cells}


def samples(command: CommandLine, run: str = "latest") -> dict[str, tuple[float, ...]]:
    """The samples of a run's cells, by id."""
    return {cell.id: tuple(cell.samples) for cell in records(command, run)}


def records(command: CommandLine, run: str = "latest") -> Sequence[CellRecord]:
    """A run's cells."""
    answer = command.run("report", run, "--format", "json")
    return RunRecord.model_validate_json(answer.stdout, strict=False).cells


def name_of(process: int) -> str:
    """The name of a process; empty where it has ended."""
    return of_process(process, "comm").decode().strip()


def qemus_of(process: int) -> list[int]:
    """The QEMUs that a process or its children have started."""
    return [one for one in family(process) if name_of(one).startswith("qemu-system")]


def measuring_worker(process: int) -> list[int]:
    """A worker that has a guest, if there is one."""
    return [one for one in worker_processes(process) if qemus_of(one)][:1]


@contextlib.contextmanager
def stopped(process: int) -> Iterator[None]:
    """A process that does nothing within the context."""
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def wrong_qemu(folder: Path) -> tuple[Path, Path]:
    """A folder for PATH whose QEMU counts two for each instruction once a file is there; folder and file."""
    folder.mkdir()
    switch, program = folder / "counts-wrong", folder / "qemu-system-x86_64"
    program.write_text(Path(__file__).with_name("wrong_qemu.sh").read_text().replace("SWITCH", str(switch)))
    program.chmod(0o755)
    return folder, switch


@dataclass
class Proxy:
    """Passes on what comes to a port of its own, until it is to ``stall``."""

    target: int
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    is_stalled: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.listener.close()

    @property
    def address(self) -> str:
        """Where a client or a worker finds the scheduler behind it."""
        return f"tls://127.0.0.1:{self.listener.getsockname()[1]}"

    def stall(self) -> None:
        """Pass nothing on any more: connections stay, and say nothing."""
        self.is_stalled.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                here, _ = self.listener.accept()
                there = socket.create_connection(("127.0.0.1", self.target))
                for source, sink in ((here, there), (there, here)):
                    threading.Thread(target=self._pass, args=(source, sink), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.is_stalled.is_set():
                    threading.Event().wait()  # keeps both ends open
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
