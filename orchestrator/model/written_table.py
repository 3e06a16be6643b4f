# SPDX-License-Identifier: GPL-2.0-only
"""A cost table's file, written whole or not at all."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import HostError, UsageError


def write_table(path: Path, text: str) -> None:
    """Write a file that is not there yet. Raises UsageError where it is, HostError where it cannot be written."""
    if path.exists() or path.is_symlink():
        hint = "name another file, or add --force to replace this one"
        raise UsageError("this file exists", where=str(path), hint=hint)
    replace_table(path, text)


def replace_table(path: Path, text: str) -> None:
    """Write a file, or replace it: a reader finds the old one or the new one. Raises HostError where it cannot."""
    unfinished = path.with_name(f".{path.name}.new")
    try:
        try:
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise
    except OSError as error:
        hint = "name a file in a folder of yours: --out my/cpu.yaml"
        raise HostError(f"the cost table cannot be written: {error.strerror}", where=str(path), hint=hint) from None
