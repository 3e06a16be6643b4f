# SPDX-License-Identifier: GPL-2.0-only
"""The console of the guest that a cell was measured in, by the run's log of steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from orchestrator.plain_text import plain_line, without_sequences
from orchestrator.results.run_files import kept_file
from orchestrator.steps import LOG_NAME

LAST_LINES = 40
"""A panic has thirty to fifty, with its trace and registers; the cell's reason quotes the first of them."""
_TAIL_BYTES = 16 << 10
_LARGEST_LOG = 64 << 20
_LINE = re.compile(
    r" *\d+\.\d{3}  (?P<boot>boot\d+): +"
    r"(?:(?:boot|restore) (?P<guest>guest\d+-[\w.+-]+) on |measure (?P<cell>\S+)(?: FAILED)? \(\d)"
)


def consoles(directory: Path) -> Mapping[str, str]:
    """Console logs by cells' ids, as paths in a run's directory; of cells in its log, in guests a channel reached.

    A cell of an interrupted run has its last guest. Empty where there is no log.
    """
    try:
        with (directory / LOG_NAME).open("rb") as log:
            text = log.read(_LARGEST_LOG).decode("utf-8", errors="replace")
    except OSError:
        return {}
    guests: dict[str, str] = {}
    found: dict[str, str] = {}
    for line in text.splitlines():
        step = _LINE.match(line)
        if step is None:
            continue
        if step["guest"]:
            guests[step["boot"]] = step["guest"]
        elif step["boot"] in guests:
            found[step["cell"]] = f"{step['boot']}/{guests[step['boot']]}.console"
    return found


def last_lines(directory: Path, cells: Iterable[str]) -> Mapping[str, str]:
    """The last lines of the console of each of these cells, where it is still there."""
    wanted = list(cells)
    known = consoles(directory) if wanted else {}
    tails = {cell: _tail(directory, known[cell]) for cell in wanted if cell in known}
    return {cell: tail for cell, tail in tails.items() if tail}


def _tail(directory: Path, console: str) -> str:
    kept = kept_file(directory, console, _TAIL_BYTES)
    text = "" if kept is None else kept.content.decode("utf-8", errors="replace")
    lines = [plain_line(line.rstrip()) for line in without_sequences(text).split("\n")]
    return "\n".join([line for line in lines if line][-LAST_LINES:])
