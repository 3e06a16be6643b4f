# SPDX-License-Identifier: GPL-2.0-only
"""A file that is written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, or replace it: a reader finds the old one or the new one. Raises OSError.

    A symbolic link in its place is replaced, not followed: a run's directory may come from elsewhere.
    """
    unfinished = path.with_name(f".{path.name}.new")
    try:
        if unfinished.is_symlink():
            unfinished.unlink()
        with open(unfinished, "wb", opener=_without_links) as file:
            file.write(content.encode() if isinstance(content, str) else content)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
