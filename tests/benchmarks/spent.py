# SPDX-License-Identifier: GPL-2.0-only
"""What a command takes: CPU seconds, and its largest resident size."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# The kernel's ru_maxrss of a process is at least that of the one that started it, before the exec; VmHWM is its own.
_PROGRAM = """
import atexit, sys
from pathlib import Path
from orchestrator.cli.main import main
atexit.register(lambda: print(Path("/proc/self/status").read_text(), file=sys.stderr))
main()
"""


@dataclass(frozen=True)
class Spent:
    """What a command took: CPU seconds of its own, its largest resident size in KiB, how it ended, and its output."""

    seconds: float
    memory: int
    status: int
    output: bytes


def spent(lab: Path, *arguments: str) -> Spent:
    """Run a command of the lab ``lab`` to its end."""
    return spent_by([sys.executable, "-c", _PROGRAM, *arguments], lab, {"ORCHESTRATOR_LAB": str(lab), "COLUMNS": "100"})


def spent_by(argv: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Spent:
    """Run any program to its end; what it prints is kept in ``folder`` meanwhile. ``wait4`` has its CPU time alone.

    The largest size is what it says of itself, or else that of ``wait4``.
    """
    output, memory = folder / "output", folder / "memory"
    with output.open("wb") as file, memory.open("wb") as status_file:
        number = os.posix_spawn(
            argv[0],
            list(argv),
            {**os.environ, **environment},
            file_actions=[(os.POSIX_SPAWN_DUP2, file.fileno(), 1), (os.POSIX_SPAWN_DUP2, status_file.fileno(), 2)],
        )
        _, status, used = os.wait4(number, 0)
    said = re.findall(r"^VmHWM:\s+(\d+) kB$", memory.read_text(), re.MULTILINE)
    largest = int(said[0]) if said else used.ru_maxrss
    seconds = used.ru_utime + used.ru_stime
    return Spent(seconds, largest, os.waitstatus_to_exitcode(status), output.read_bytes())
