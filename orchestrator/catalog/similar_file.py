# SPDX-License-Identifier: GPL-2.0-only
"""The file that may be meant by a path at which there is none."""

from __future__ import annotations

from pathlib import Path

from orchestrator.catalog.spelling import nearest


def similar_file(path: Path, suffixes: tuple[str, ...]) -> str:
    """A hint at the file with one of these suffixes that is probably meant; empty where there is none."""
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    try:
        found = sorted(entry.name for entry in path.parent.iterdir() if entry.name.endswith(suffixes) and entry != path)
    except OSError:  # it cannot be listed
        return ""
    guess = nearest(path.name, found) or nearest(path.stem, found)
    return f"did you mean {path.parent / guess}?" if guess else ""
