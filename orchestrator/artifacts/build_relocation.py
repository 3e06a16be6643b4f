# SPDX-License-Identifier: GPL-2.0-only
"""Relocating a copy of a build tree to another source, so that make rebuilds only what differs.

Kbuild compares an object's command line and the names of its inputs with today's. Both hold the source's absolute
path; those of objtool, on which every object depends, also hold the build tree's. Kbuild detects a changed file by
its time alone, which means nothing in another tree: an object may be newer than a file that it was not made from. So
objects made from a file that differs are removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path


def relocate(build: Path, made_in: Path, before: Path, now: Path) -> None:
    """Adapt ``build``, a copy of ``made_in``, to the source ``now``, which shares files with ``before``."""
    differing_files = set(_files(before)) ^ set(_files(now)) if before != now else set()
    differing = {os.fsencode(now / path) for path, _ in differing_files}
    for file in [*build.rglob("*.cmd"), *build.rglob("*.d"), build / "Makefile"]:
        if not file.is_file() or file.is_symlink() or file.stat().st_size > 64 << 20:
            continue
        changed = content = file.read_bytes()
        for old, new in ((made_in, build), (before, now)):
            for end in (b"/", b"\n"):
                changed = changed.replace(os.fsencode(old) + end, os.fsencode(new) + end)
        if changed != content:
            file.write_bytes(changed)
        # .NAME.cmd says how NAME was made. (auto.conf.cmd differs: removing auto.conf would rebuild everything.)
        made = re.fullmatch(r"\.(.+)\.cmd", file.name)
        if made is not None and not differing.isdisjoint(re.findall(rb"[^\s:;\"'\\()]+", changed)):
            file.with_name(made[1]).unlink(missing_ok=True)
    link = build / "source"
    if link.is_symlink():
        link.unlink()
        link.symlink_to(now)


def _files(source: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for folder, _, names in os.walk(source):
        for name in names:
            facts = (path := Path(folder, name)).lstat()
            yield str(path.relative_to(source)), (facts.st_dev, facts.st_ino)
