# SPDX-License-Identifier: GPL-2.0-only
"""A cost table's file, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import HostError, UsageError
from orchestrator.whole_file import write_whole


def write_table(path: Path, text: str) -> None:
    """Write a file that is not there yet. Raises UsageError where it is, HostError where it cannot be written."""
    if path.exists() or path.is_symlink():
        hint = "name another file, or add --force to replace this one"
        raise UsageError("this file exists", where=str(path), hint=hint)
    replace_table(path, text)


def replace_table(path: Path, text: str) -> None:
    """Write a file, or replace it: a reader finds the old one or the new one. Raises HostError where it cannot."""
    try:
        write_whole(path, text)
    except OSError as error:
        hint = "name a file in a folder of yours: --out my/cpu.yaml"
        raise HostError(f"the cost table cannot be written: {error.strerror}", where=str(path), hint=hint) from None
