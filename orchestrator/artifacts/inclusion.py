# SPDX-License-Identifier: GPL-2.0-only
"""Which files a C source needs, found through its includes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.errors import ConfigError

_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"\n]{1,200})"', re.MULTILINE)
_MACRO = re.compile(r"^\s*#\s*(?:define|include\s+[A-Za-z_])(?:.*\\\n)*.*", re.MULTILINE)
"""A macro, whose text may name a file, and an include that has a macro's."""
_FILE = re.compile(r"(?<![\w./-])[\w./-]{1,200}\.(?:h|inc|def|tbl)(?![\w.])")
_LARGEST_FILE = 1 << 20


def included(main: str, folders: Sequence[Path]) -> list[Path]:
    """Return the files that a source includes, as ``included_as`` finds them."""
    return list(included_as(main, folders).values())


def included_as(main: str, folders: Sequence[Path]) -> Mapping[str, Path]:
    """Return the files that a source includes, directly or through others, by their paths from the source's folder.

    Each is looked for beside the file that includes it, then in ``folders``, whose first is the source's. A macro may
    name it. A header NAME.h brings in the source beside it that defines what it declares: NAME.c, or NAME.S in
    assembly. What no folder has is left out. Raises ConfigError for a file that cannot be read.
    """
    found: dict[str, Path] = {}
    waiting: list[tuple[str, Path | None, Path]] = [(main, None, Path())]
    while waiting:
        text, folder, place = waiting.pop()
        macros = (name for line in _MACRO.findall(text) for name in _FILE.findall(line))
        for name in (*_INCLUDE.findall(text), *macros):
            for key, file in _brought_in(name, folder, place, folders):
                if key not in found:
                    found[key] = file
                    waiting.append((read_source(file), file.parent, Path(key).parent))
    return found


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


def _brought_in(name: str, folder: Path | None, place: Path, folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """A file by its name in a file of ``folder``, which is at ``place``, and the source that belongs to it."""
    beside = [] if folder is None else [(folder / name, place / name)]
    for file, path in (*beside, *((one / name, Path(name)) for one in folders)):
        if file.is_file():
            key = os.path.normpath(path)
            yield key, file
            for suffix in (".c", ".S") if file.suffix == ".h" else ():
                if (source := file.with_suffix(suffix)).is_file():
                    yield str(Path(key).with_suffix(suffix)), source
            return
