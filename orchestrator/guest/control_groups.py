# SPDX-License-Identifier: GPL-2.0-only
"""Where are the files of this process's control groups of memory? Version 1 and version 2 have other names for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/proc/self/cgroup")
_MOUNTED = Path("/sys/fs/cgroup")


def memory_files(version_1: str, version_2: str) -> Iterator[list[Path]]:
    """For each hierarchy that counts memory, the file of that name in our own group, then in the groups above it.

    They need not be there: the root of all groups has few files, and a hierarchy may not be mounted.
    """
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)  # cgroups(7)
        group = Path(path.lstrip("/"))
        folders = (group, *group.parents)
        if not controllers:
            yield [_MOUNTED / folder / version_2 for folder in folders]
        elif "memory" in controllers.split(","):
            yield [_MOUNTED / "memory" / folder / version_1 for folder in folders]
