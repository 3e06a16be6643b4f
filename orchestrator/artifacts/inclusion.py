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
    """Return the files that a source includes, directly or through others.

    Each is looked for beside the file that includes it, then in ``folders``, whose first is the source's. A macro may
    name it. A header NAME.h brings in the source beside it that defines what it declares: NAME.c, or NAME.S in
    assembly. What no folder has is left out. Raises ConfigError for a file that cannot be read.
    """
    return list(_found(main, folders, ()).values())


def included_as(main: str, folders: Sequence[Path]) -> Mapping[str, Path]:
    """Return the files that a source includes by their paths from its folder, for a copy of all of them in one folder.

    They are found as by ``included``, but the copy has one file of a path: what a file of the lab's includes is that of
    the first of ``folders``, too, where it has one.
    """
    return _found(main, folders, folders[:1])


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


def _found(main: str, folders: Sequence[Path], first: Sequence[Path]) -> Mapping[str, Path]:
    """The files by their paths; ``first`` comes before what is beside a file of the other folders."""
    found: dict[str, Path] = {}
    waiting: list[tuple[str, Sequence[Path], Path]] = [(main, (), Path())]
    while waiting:
        text, beside, place = waiting.pop()
        macros = (name for line in _MACRO.findall(text) for name in _FILE.findall(line))
        for name in (*_INCLUDE.findall(text), *macros):
            for key, file in _brought_in(name, beside, place, folders):
                if key not in found:
                    found[key], at = file, Path(key).parent
                    others = first if any(file.is_relative_to(one) for one in folders[1:]) else ()
                    waiting.append((read_source(file), [*(one / at for one in others), file.parent], at))
    return found


def _brought_in(name: str, beside: Sequence[Path], place: Path, folders: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """A file by its name in one that is at ``place``, of the folders ``beside``, and the source that belongs to it."""
    places = (*((one / name, place / name) for one in beside), *((one / name, Path(name)) for one in folders))
    for file, path in places:
        if file.is_file():
            key = os.path.normpath(path)
            yield key, file
            for suffix in (".c", ".S") if file.suffix == ".h" else ():
                if (source := file.with_suffix(suffix)).is_file():
                    yield str(Path(key).with_suffix(suffix)), source
            return
