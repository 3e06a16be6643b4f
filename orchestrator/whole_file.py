# SPDX-License-Identifier: GPL-2.0-only
"""A file that is written whole or not at all."""

from __future__ import annotations

from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file, text as UTF-8, or replace it: a reader finds the old one or the new one. Raises OSError."""
    unfinished = path.with_name(f".{path.name}.new")
    try:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
