# SPDX-License-Identifier: GPL-2.0-only
"""Which files a C source needs, by what it includes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.errors import ConfigError

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([A-Za-z0-9_.-]+)"', re.MULTILINE)
_LARGEST_FILE = 1 << 20


def included(main: str, folders: Sequence[Path]) -> list[Path]:
    """Return all that a source includes, itself or by way of others, from these folders (the first that has it).

    A header NAME.h brings in the sources NAME.c, NAME_*.c and their like in assembly (.S) from its folder, which define
    what it declares. What is in none of the folders is left out. Raises ConfigError for a file that cannot be read.
    """
    found: dict[Path, None] = {}
    waiting = [main]
    while waiting:
        for header in _INCLUDE.findall(waiting.pop()):
            for file in _brought_in(header, folders):
                if file not in found:
                    found[file] = None
                    waiting.append(read_source(file))
    return list(found)


def read_source(file: Path) -> str:
    """Return a source's text. Raises ConfigError where it cannot be read as one."""
    try:
        if file.stat().st_size > _LARGEST_FILE:
            raise ConfigError("too large for a source file", where=str(file))
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", where=str(file)) from None


def _brought_in(header: str, folders: Sequence[Path]) -> Iterator[Path]:
    home = next((folder for folder in folders if (folder / header).is_file()), None)
    if home is None:
        return
    yield home / header
    stem = Path(header).stem
    for file in sorted(home.iterdir()):
        if file.suffix in (".c", ".S") and (file.stem == stem or file.stem.startswith(f"{stem}_")):
            yield file
