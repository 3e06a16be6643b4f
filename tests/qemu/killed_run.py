# SPDX-License-Identifier: GPL-2.0-only
"""A run in a lab of its own, a process of which is killed at a moment that is drawn."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from command_line import PATIENCE, CommandLine
from fleet_processes import family, of_process

from orchestrator.paths import cache_dir
from orchestrator.results.contract import CellRecord
from orchestrator.results.store import FILE_NAME, RunEntry, Store

_FETCHED = ("apt", "archives", "debian", "kernel-source", "kernels", "pins", "programs", "vmlinux")
"""What a cold cache has all the same: it was fetched, or takes long to make."""

_NOT_EXECUTED_YET = ("python", "setpriv")
_SELDOM = 0.05

_MOST_CALLS = 400
_LOOK = 0.002


@dataclass(frozen=True)
class Moment:
    """Behind ``lines`` of the run's progress, and the system calls for reading and writing that its process does then.

    With two guests side by side, two runs write their lines in different orders: the same moment is nearly the same.
    """

    lines: int
    calls: int

    @classmethod
    def drawn(cls, draw: random.Random, lines: int) -> Moment:
        """Any moment of a run that writes so many lines."""
        return cls(draw.randint(1, lines), draw.randint(0, _MOST_CALLS))


@dataclass(frozen=True)
class KilledLab:
    """A store, a cache and a folder for temporary files below ``root``, which no other process uses."""

    root: Path

    @classmethod
    def cold(cls, root: Path) -> KilledLab:
        """One with nothing in its cache but links to what the user's has fetched."""
        for folder in ("lab", "tmp"):
            (root / folder).mkdir(parents=True)
        for kind in _FETCHED:
            (root / "cache" / kind).mkdir(parents=True)
            for entry in (cache_dir() / kind).glob("*"):
                if entry.suffix != ".building":
                    (root / "cache" / kind / entry.name).symlink_to(entry)
        return cls(root)

    @classmethod
    def warm(cls, root: Path) -> KilledLab:
        """One with the user's cache."""
        for folder in ("lab", "tmp"):
            (root / folder).mkdir(parents=True)
        (root / "cache").symlink_to(cache_dir())
        return cls(root)

    @property
    def store(self) -> Path:
        """The folder of the store."""
        return self.root / "lab"

    @property
    def command(self) -> CommandLine:
        """The command line in this lab."""
        folders = {"ORCHESTRATOR_CACHE": str(self.root / "cache"), "TMPDIR": str(self.root / "tmp")}
        return CommandLine(self.store, folders)

    @contextlib.contextmanager
    def running(self, *arguments: str | Path) -> Iterator[RunningCommand]:
        """The only command that runs here; it has ended, with all that it started, when the context has."""
        with self.started(*arguments) as command:
            yield command
        left = self.left_after()
        assert left == {}, left

    @contextlib.contextmanager
    def started(self, *arguments: str | Path) -> Iterator[RunningCommand]:
        """A command as it runs; it has ended when the context has."""
        with self.command.start(*arguments, "--offline", "--verbose", stderr=subprocess.PIPE) as process:
            command = RunningCommand(self, process)
            try:
                yield command
                command.end()
            finally:
                process.kill()

    def processes(self) -> dict[int, str]:
        """The names of the processes that work in this lab, by their numbers; a zombie does not."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                if self._is_of(folder):
                    found[int(folder.name)] = (folder / "comm").read_text().strip()
        return found

    def kill(self, process: int) -> bool:
        """Kill a process, if it still is one of this lab's."""
        try:
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            return False
        try:
            # The number is not another process' while the descriptor is open.
            if not self._is_of(Path(f"/proc/{process}")):
                return False
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return False
        finally:
            os.close(descriptor)
        return True

    def left_after(self) -> dict[int, str]:
        """The processes that are left when all could have ended: as soon as there are none."""
        deadline = time.monotonic() + PATIENCE
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(_LOOK)
        return left

    def runs(self) -> list[RunEntry]:
        """The runs of a store that is sound, the newest first; none before there is a store."""
        file = self.store / FILE_NAME
        if not file.exists() or not file.stat().st_size:
            return []
        with contextlib.closing(sqlite3.connect(file)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        with Store.open(self.store) as store:
            return store.runs()

    def cells(self, run: RunEntry) -> Mapping[str, CellRecord]:
        """A run's cells by their ids."""
        with Store.open(self.store) as store:
            return {cell.id: cell for cell in store.load_run(run.id).cells}

    def litter(self) -> list[str]:
        """Files that no run needs: unfinished artifacts, temporary files, what was set aside as damaged."""
        hidden = [path for path in self.store.rglob(".*") if path.is_file()]
        guests = [path for suffix in ("overlay", "initramfs") for path in self.store.rglob(f"*.{suffix}")]
        places = [*hidden, *guests, *(self.root / "tmp").iterdir()]
        if not (self.root / "cache").is_symlink():
            places += [*self.root.glob("cache/*/*.building"), *self.root.glob("cache/damaged/*")]
        return sorted(str(path.relative_to(self.root)) for path in places)

    def _is_of(self, folder: Path) -> bool:
        # A QEMU and the shell around it have hardly any environment; the command names files of the lab.
        variables, words = ((folder / name).read_bytes().split(b"\0") for name in ("environ", "cmdline"))
        own = f"{self.root}/".encode()
        return f"ORCHESTRATOR_LAB={self.store}".encode() in variables or any(own in word for word in words)


class RunningCommand:
    """A command as it runs, and what it has said so far."""

    def __init__(self, lab: KilledLab, process: subprocess.Popen[str]) -> None:
        self.lab, self.process = lab, process
        self.lines: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def reach(self, moment: Moment) -> bool:
        """Wait for a moment; False where the command ends before."""
        with self._said:
            self._said.wait_for(lambda: len(self.lines) >= moment.lines or not self._reader.is_alive())
        before = self._calls()
        # One that waits for a guest or a compiler does no calls for a while, and then comes its next line.
        while self.process.poll() is None and len(self.lines) <= moment.lines:
            if self._calls() >= before + moment.calls:
                break
            time.sleep(_LOOK)
        return self.process.poll() is None

    def strike(self, target: str, draw: random.Random) -> str | None:
        """Kill the next QEMU, or with another ``target`` another program; its name, None at the command's end."""
        while self.process.poll() is None:
            running = [(child, name) for child, name in _descendants(self.process.pid) if _is_target(name, target)]
            if running:
                # By the name first: of compilers there are many, and each program is Python or setpriv at first.
                name = draw.choice(sorted({name for _, name in running}))
                wanted = name not in _NOT_EXECUTED_YET or draw.random() < _SELDOM
                if wanted and self.lab.kill(draw.choice(sorted(child for child, one in running if one == name))):
                    return name
            time.sleep(_LOOK)
        return None

    def end(self) -> int:
        """Wait for the command's end; its exit status."""
        assert self.process.stdout is not None
        self.process.stdout.read()
        self._reader.join()
        return self.process.wait()

    def _calls(self) -> int:
        try:
            facts = Path(f"/proc/{self.process.pid}/io").read_text().split()
        except OSError:  # it has ended
            return 0
        return sum(int(facts[facts.index(name) + 1]) for name in ("syscr:", "syscw:"))

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.lines.append(line.rstrip("\n"))
                self._said.notify_all()
        with self._said:
            self._said.notify_all()


def _is_target(name: str, target: str) -> bool:
    return name.startswith("qemu-system") == (target == "QEMU")


def _descendants(process: int) -> Iterator[tuple[int, str]]:
    """The numbers and names of what a process has started, and of what that has: found quickly, unlike all of a lab."""
    return ((one, of_process(one, "comm").decode().strip()) for one in family(process)[1:])
