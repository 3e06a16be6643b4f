# SPDX-License-Identifier: GPL-2.0-only
"""Logs the programs that tests start, for the table of what each file of tests costs (``suite_costs``).

Python imports this file at its start where its folder is on PYTHONPATH: in each command of the lab that a test starts.
It does nothing without the variable that names the log.
"""

from __future__ import annotations

import contextlib
import os
import sys

LOG = "ORCHESTRATOR_TESTS_STARTED"
"""The variable with the path of the log, which has a line for each program: its kind."""

_KINDS = {"make": "make", "gcc": "compiler", "clang": "compiler", "apt-get": "apt-get", "git": "git"}
_EVENTS = ("subprocess.Popen", "os.exec")
"""Not os.posix_spawn: since Python 3.13 subprocess calls it, behind its own event."""


def kind_of(words: list[str]) -> str:
    """``boot`` or ``restore`` for a guest, ``python``, ``make``, ``compiler``, ``apt-get``, ``git``, else ``other``."""
    for word in words:
        name = word.rpartition("/")[2]
        if name.startswith("qemu-system-"):
            if "-kernel" not in words:  # it is asked for its version, or its CPUs
                return "other"
            return "restore" if "-incoming" in words else "boot"
        if name.startswith("python"):
            return "python"
        if name in _KINDS:
            return _KINDS[name]
    return "other"


def note(event: str, arguments: tuple[object, ...]) -> None:
    """Log a program: a hook for ``sys.addaudithook``."""
    if event not in _EVENTS:
        return
    log, words = os.environ.get(LOG), arguments[1]
    if not log or not isinstance(words, list | tuple):
        return
    # Where a test has filled the disk, used all descriptors or become another user, the count is short by one.
    with contextlib.suppress(OSError):
        file = os.open(log, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(file, f"{kind_of([os.fsdecode(word) for word in words])}\n".encode())
        finally:
            os.close(file)


if LOG in os.environ:
    sys.addaudithook(note)
