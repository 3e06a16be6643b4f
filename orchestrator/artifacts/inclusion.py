# SPDX-License-Identifier: GPL-2.0-only
"""Which files a C source needs, found through its includes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.errors import ConfigError

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([A-Za-z0-9_.-]+)"', re.MULTILINE)
_LARGEST_FILE = 1 << 20


def included(main: str, folders: Sequence[Path]) -> list[Path]:
    """Return the files that a source includes, directly or through others, from the first folder that has each.

    A header NAME.h brings in the source beside it that defines what it declares: NAME.c, or NAME.S in assembly. A
    header that no folder has is left out. Raises ConfigError for a file that cannot be read.
    """
    found: dict[Path, None] = {}
    waiting = [main]
    while waiting:
        for name in _INCLUDE.findall(waiting.pop()):
            for file in _brought_in(name, folders):
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
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError("not UTF-8 text", where=f"{file}:{line}", hint="save the file as UTF-8") from None


def _brought_in(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    header = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if header is not None:
        yield header
        yield from (source for suffix in (".c", ".S") if (source := header.with_suffix(suffix)).is_file())
