# SPDX-License-Identifier: GPL-2.0-only
"""Does a limit of the host end a command with a sentence that says which one, and what to do?"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import typer

from orchestrator.cli.main import expected_failures


def open_too_many_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    with ExitStack() as files:
        for _ in range(64):
            files.enter_context(Path("/dev/null").open("rb"))


def take_too_much_memory() -> None:
    bytearray(1 << 62)


def start_too_many_threads() -> None:
    threading.stack_size(1 << 46)  # more than a process has addresses
    threading.Thread(target=take_too_much_memory).start()


def fill_a_disk() -> None:
    Path("/dev/full").write_text("x")


def fill_the_only_disk() -> None:
    """No folder for temporary files can be written either."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with pytest.raises(FileNotFoundError):
        tempfile.gettempdir()
    fill_a_disk()


LIMITS: dict[str, tuple[Callable[[], None], str, str]] = {
    "files": (open_too_many_files, "error: /dev/null: too many open files", "hint: allow more open files: ulimit -n"),
    "memory": (take_too_much_memory, "error: out of memory", "hint: allow more memory (ulimit -v)"),
    "threads": (start_too_many_threads, "error: can't start new thread", "hint: allow more processes (ulimit -u)"),
    "room": (fill_a_disk, "no space left: ", "hint: make room there, then run again, or resume with --resume"),
    "all room": (
        fill_the_only_disk,
        "no space left: ",
        "hint: make room there, then run again, or resume with ",
    ),
}


def reach(limit: str) -> None:
    """Reach a limit as a command does, in a process that ends with it."""
    try:
        expected_failures(LIMITS[limit][0])()
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_is_a_sentence(limit: str) -> None:
    program = f"import test_host_limits; test_host_limits.reach({limit!r})"
    search = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": search}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment, timeout=120
    )
    error, hint = done.stderr.splitlines()
    assert done.returncode == 3
    assert LIMITS[limit][1] in error
    assert hint.startswith(LIMITS[limit][2])
