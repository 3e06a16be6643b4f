# SPDX-License-Identifier: GPL-2.0-only
"""The files of a user's folder of sources: which of them belong to it, and what they hold."""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator.errors import ConfigError

_MOST_FILES = 2000
_MOST_BYTES = 64 << 20
_BUILT = re.compile(r"\..*|.*\.(o|ko|a|mod|mod\.c|cmd)|Module\.symvers|modules\.order")
"""What an earlier build has left in the folder, and hidden files."""

_LEADS_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""What a link to nothing gives."""


def read_sources(folder: Path) -> Mapping[str, bytes]:
    """The content of a folder's files by their paths in it, without what a build has left there.

    A link to a folder is followed where it leads to another place in the same folder. Raises ConfigError for a file or
    folder that cannot be read, and for more than is a module's.
    """
    found: dict[str, bytes] = {}
    size = 0
    file = folder
    try:
        for file in _files(folder, (folder.resolve(),)):
            size += file.stat().st_size
            if len(found) == _MOST_FILES or size > _MOST_BYTES:
                what = f"holds more than {_MOST_FILES} files or {_MOST_BYTES >> 20} MiB, too much for a module"
                raise ConfigError(what, where=str(folder))
            found[str(file.relative_to(folder))] = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(error.filename or file)) from None
    return found


def _files(folder: Path, within: tuple[Path, ...]) -> Iterator[Path]:
    """The files below a folder, in order; ``within`` are the folder of all and those on the way, without links."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        try:
            mode = path.stat().st_mode
        except OSError as error:
            if error.errno in _LEADS_NOWHERE:
                continue
            raise
        if stat.S_ISDIR(mode):
            place = path.resolve()
            if place.is_relative_to(within[0]) and place not in within:
                yield from _files(path, (*within, place))
        elif stat.S_ISREG(mode) and not _BUILT.fullmatch(path.name):
            yield path
