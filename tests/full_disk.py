# SPDX-License-Identifier: GPL-2.0-only
"""A disk that is full but for so much: a file that takes up the rest of a small file system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def room(folder: Path, kib: int) -> Iterator[None]:
    """Leave ``kib`` KiB on a folder's file system (a tmpfs) within the context."""
    filler = folder / "filler"
    facts = os.statvfs(folder)
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.posix_fallocate(descriptor, 0, max(facts.f_bavail * facts.f_frsize - (kib << 10), 1))
        yield
    finally:
        os.close(descriptor)
        filler.unlink()
