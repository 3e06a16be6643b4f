# SPDX-License-Identifier: GPL-2.0-only
"""Runs of the command line on a disk that fills up, and what comes of them when there is room again.

To be called where a small file system of its own is mounted: see ``namespaces``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from command_line import QUICKSTART, REDUCED, CommandLine
from full_disk import room

from orchestrator.paths import cache_dir

RUN = ("run", QUICKSTART, *REDUCED, "--set", "probes=[none, kprobe]")
MADE_ANEW = frozenset({"initramfs", "locks", "modules", "saved-guests", "slots"})
"""Of the cache that fills up; the rest is the user's, by links: to fetch and unpack kernels takes a minute."""


@dataclass(frozen=True)
class Ended:
    """A run with ``kib`` KiB of room, and the one that went on with it, or began anew where none had begun."""

    kib: int
    status: int
    errors: list[str]
    second_status: int
    second_errors: list[str]
    samples: dict[str, list[float]]
    """Of the second one's cells, by probe."""


def fill_up(folder: str, kind: str, answer: str, *rooms: str) -> None:
    """Run with each of these rooms (KiB), and write what came of it."""
    Path(answer).write_text(json.dumps([asdict(_with_room(Path(folder), kind, int(kib))) for kib in rooms]))


def ended(answer: Path) -> list[Ended]:
    """What ``fill_up`` has written."""
    return [Ended(**load) for load in json.loads(answer.read_text())]


@contextmanager
def _command(folder: Path, kind: str, kib: int) -> Iterator[CommandLine]:
    """A command line whose results, cache or temporary files are in a new folder below this one."""
    path = folder / str(kib)
    path.mkdir()
    lab = path if kind == "results" else folder.parent / f"lab-{kind}-{kib}"
    match kind:
        case "results":
            yield CommandLine(lab)
        case "cache":
            for part in cache_dir().iterdir():
                if part.is_dir() and part.name not in MADE_ANEW:
                    (path / part.name).symlink_to(part)
            yield CommandLine(lab, {"ORCHESTRATOR_CACHE": str(path)})
        case "temporary":
            yield CommandLine(lab, {"TMPDIR": str(path)})


def _with_room(folder: Path, kind: str, kib: int) -> Ended:
    with _command(folder, kind, kib) as command:
        with room(folder, kib):
            first = command.run_apart(*RUN)
        second = command.run_apart(*RUN, "--resume")
        if "has no unfinished run" in second.stderr:
            second = command.run_apart(*RUN)
        samples = {probe: list(cell.samples) for probe, cell in command.cells().items()}
    return Ended(kib, first.returncode, _said(first.stderr), second.returncode, _said(second.stderr), samples)


def _said(stderr: str) -> list[str]:
    """The lines that are no progress."""
    return [line for line in stderr.splitlines() if line.startswith(("error", "hint", "warning", "Traceback"))]
