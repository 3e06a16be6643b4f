# SPDX-License-Identifier: GPL-2.0-only
"""Packages that apt fetched in one root, kept for the next one.

Each root has an archive of its own, in which apt can lock what it likes; files are lent and kept as hard links.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

_DAYS = 30.0
"""Days after which a pool is made again: by then it has packages that the mirror no longer has."""


@contextlib.contextmanager
def lent(pool: Path, archive: Path) -> Iterator[None]:
    """Fill a root's archive of packages from the pool, and keep in the pool what has come to be there."""
    _begin(pool)
    _link_all(pool, archive)
    try:
        yield
    finally:
        _link_all(archive, pool)


def _begin(pool: Path) -> None:
    begun = pool / "begun"
    with contextlib.suppress(FileNotFoundError):
        if time.time() - begun.stat().st_mtime > _DAYS * 86_400:
            shutil.rmtree(pool, ignore_errors=True)
    pool.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        begun.touch(exist_ok=False)


def _link_all(source: Path, target: Path) -> None:
    for package in source.glob("*.deb"):
        with contextlib.suppress(FileExistsError, FileNotFoundError):
            try:
                os.link(package, target / package.name)
            except PermissionError:  # fs.protected_hardlinks: only an owner may link a file
                shutil.copy2(package, target)
