# SPDX-License-Identifier: GPL-2.0-only
"""A control group with little memory, for the tests in which the system kills for want of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_MOUNTED = Path("/sys/fs/cgroup")


@contextmanager
def memory_group(name: str, limit: int) -> Iterator[Path]:
    """A group that may use ``limit`` bytes: the file that takes numbers of processes. Skips where there can be none."""
    parent, limiting = _parent()
    folder = parent / name
    try:
        folder.mkdir()
        (folder / limiting).write_text(str(limit))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield folder / "cgroup.procs"
    finally:
        folder.rmdir()


def _parent() -> tuple[Path, str]:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _MOUNTED / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
    # In version 2 a group that has processes has no groups below it with limits: the new one is beside all others.
    return _MOUNTED, "memory.max"
