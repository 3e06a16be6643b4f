# SPDX-License-Identifier: GPL-2.0-only
"""A copy of a kernel's build tree made to belong to another source, so that only what differs is built again.

Kbuild compares the command that made an object, and the names of what it was made from, with those of today. Both hold
the source's absolute path, and those of objtool, after which every object is made again, the build tree's own.
It detects a changed file by its time alone, which means nothing in another tree: an object may be younger than a file
that it was not made from. So objects made from a file that differs are removed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_LARGEST = 64 << 20
# .NAME.cmd says how NAME beside it was made. (auto.conf.cmd is another thing: without an auto.conf all is made anew.)
_MADE = re.compile(r"\.(?P<name>.+)\.cmd")
_WORD = re.compile(rb"[^\s:;\"'\\()]+")


def relocate(build: Path, made_in: Path, before: Path, now: Path) -> None:
    """Let ``build``, a copy of what was made in ``made_in`` from the source ``before``, go on with the source ``now``.

    The two sources share the files that are the same in both, by hard links.
    """
    differing = {os.fsencode(now / path) for path in _differing(before, now)} if before != now else set()
    for file in [*build.rglob("*.cmd"), *build.rglob("*.d"), build / "Makefile"]:
        if not file.is_file() or file.is_symlink() or file.stat().st_size > _LARGEST:
            continue
        content = file.read_bytes()
        changed = _moved(_moved(content, made_in, build), before, now)
        if changed != content:
            file.write_bytes(changed)
        made = _MADE.fullmatch(file.name)
        if made is not None and not differing.isdisjoint(_WORD.findall(changed)):
            file.with_name(made["name"]).unlink(missing_ok=True)
    link = build / "source"
    if link.is_symlink():
        link.unlink()
        link.symlink_to(now)


def _moved(content: bytes, before: Path, now: Path) -> bytes:
    for end in (b"/", b"\n"):
        content = content.replace(os.fsencode(before) + end, os.fsencode(now) + end)
    return content


def _differing(before: Path, now: Path) -> set[str]:
    """The files, by their paths within a source, that are not the same one in both."""
    return {path for path, _ in set(_files(before)) ^ set(_files(now))}


def _files(source: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    folders = [source]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                else:
                    facts = entry.stat(follow_symlinks=False)
                    yield os.path.relpath(entry.path, source), (facts.st_dev, facts.st_ino)
