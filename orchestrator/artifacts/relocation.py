# SPDX-License-Identifier: GPL-2.0-only
"""A copy of a kernel's build tree made to belong to another source tree, so that only what differs is built again.

Kbuild compares the command that made an object, and the names of what it was made from, with those of today; both hold
the source's absolute path.
"""

from __future__ import annotations

from pathlib import Path

_LARGEST = 64 << 20


def relocate(build: Path, before: Path, now: Path) -> None:
    """Let a build tree that was made from the source ``before`` go on with the source ``now``."""
    if before == now:
        return
    old, new = f"{before}/".encode(), f"{now}/".encode()
    for file in [*build.rglob("*.cmd"), *build.rglob("*.d"), build / "Makefile"]:
        if not file.is_file() or file.is_symlink() or file.stat().st_size > _LARGEST:
            continue
        content = file.read_bytes()
        changed = content.replace(old, new).replace(old[:-1] + b"\n", new[:-1] + b"\n")
        if changed != content:
            file.write_bytes(changed)
    link = build / "source"
    if link.is_symlink():
        link.unlink()
        link.symlink_to(now)
