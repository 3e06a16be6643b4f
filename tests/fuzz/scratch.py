# SPDX-License-Identifier: GPL-2.0-only
"""Files for readers that want a path."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="lab-fuzz-files-")


def folder() -> Path:
    """The folder of this process, removed when it ends."""
    return Path(_folder().name)


def file(name: str, content: bytes) -> Path:
    """A file in that folder, with this content."""
    path = folder() / name
    path.write_bytes(content)
    return path
