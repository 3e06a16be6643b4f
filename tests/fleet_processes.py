# SPDX-License-Identifier: GPL-2.0-only
"""A fleet as a test starts it: its processes, what they listen on, and what they leave."""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from command_line import PATIENCE, CommandLine

from orchestrator.fleet.state import process_start

_LISTEN = "0A"


@dataclass(frozen=True)
class Socket:
    """A socket that listens, by its address as /proc has it (``0100007F``) and its port."""

    address: str
    port: int


@contextlib.contextmanager
def own_lab(folder: Path, **environment: str) -> Iterator[CommandLine]:
    """A lab with a key, and a folder of temporary files of its own: below ``folder`` sockets' paths are too long."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as temporary:
        command = CommandLine(folder, {"TMPDIR": temporary, **environment})
        assert command.run("fleet", "keys").returncode == 0
        try:
            yield command
        finally:
            command.run("fleet", "down")


def temporary_files(command: CommandLine) -> list[str]:
    """What there is in the lab's folder of temporary files, and below it."""
    return [str(path) for path in Path(command.environment["TMPDIR"]).rglob("*")]


def supervisor_of(command: CommandLine) -> int:
    """The process of the fleet ``local``."""
    return int(json.loads((command.lab / "fleets" / "local.json").read_text())["keeper"])


def family(pid: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{parent}/task").iterdir():
                found += map(int, of_process(parent, f"task/{thread.name}/children").split())
    return found


def of_process(pid: int, name: str) -> bytes:
    """A file of a process below /proc; empty where the process has ended, at whatever moment."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def worker_processes(pid: int) -> list[int]:
    """The fleet's workers among a process and those that it has started."""
    return [one for one in family(pid) if b"\0fleet\0worker\0" in of_process(one, "cmdline")]


def left_after(pids: list[int], seconds: float = PATIENCE) -> list[int]:
    """Those of the processes that are left when all could have ended: as soon as there are none."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if process_start(pid) is not None]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def listening(pids: list[int]) -> set[Socket]:
    """All TCP sockets on which the processes listen."""
    return {socket for pid in pids for socket in _listening(pid)}


def _links(pid: int) -> Iterator[str]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile, as those of connections are
            yield str(link.readlink())


def _listening(pid: int) -> Iterator[Socket]:
    try:
        links = [*_links(pid)]
        tables = [Path(f"/proc/{pid}/net/{name}").read_text() for name in ("tcp", "tcp6")]
    except OSError:  # it has ended
        return
    inodes = {link.removeprefix("socket:[").rstrip("]") for link in links if link.startswith("socket:[")}
    for line in (line for table in tables for line in table.splitlines()[1:]):
        fields = line.split()
        address, port = fields[1].split(":")
        if fields[3] == _LISTEN and fields[9] in inodes:
            yield Socket(address, int(port, 16))
