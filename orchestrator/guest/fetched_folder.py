# SPDX-License-Identifier: GPL-2.0-only
"""Copying a folder from a guest to the host: files and folders only, within bounds.

The guest is not trusted: copies stay below the target, links are not followed, and nothing is replaced.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, HostError
from orchestrator.guest.channel import complaint
from orchestrator.guest.guest import Guest

MOST_FILES = 1000


MOST_BYTES = 256 << 20


_LONGEST = 255
"""Bytes of a file name on the host's file systems."""


_LONGEST_LIST = MOST_FILES * 4096
"""Bytes of all paths: Linux accepts at most 4096 each (PATH_MAX)."""


_LEAST = 0.1
"""Minimum host seconds for the last request."""


def fetch_folder(guest: Guest, path: str, target: Path, time_limit: float) -> None:
    """Copy a guest's folder to ``target``, which must not exist, within ``time_limit`` host seconds.

    Raises GuestError, and copies nothing, for more than MOST_FILES files or MOST_BYTES bytes; HostError.
    """
    deadline = Deadline(time_limit)
    files = _find(guest, path, ["-type", "f"], deadline)
    names = [name for name in files if _is_plain(name)]
    skipped = len(files) - len(names) + len(_find(guest, path, ["!", "-type", "f", "!", "-type", "d"], deadline))
    if len(names) > MOST_FILES:
        raise _too_much(path, f"{len(names)} files, and at most {MOST_FILES}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir()
        try:
            size = _copy(guest, path, names, target, deadline)
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
    except OSError as error:  # also if the target appeared meanwhile
        raise HostError(f"cannot write the guest's {path}: {error.strerror}", where=str(target)) from None
    guest.say(f"copied the guest's {path} to {target} (files: {len(names)}, bytes: {size})")
    if skipped:
        what = "links, special files and names that cannot be printed"
        guest.say(f"{skipped} of {path} were left out: {what}")


def _copy(guest: Guest, path: str, names: list[str], target: Path, deadline: Deadline) -> int:
    size = 0
    for name in names:
        content = guest.get(f"{path}/{name}", time_limit=max(deadline.left(), _LEAST))
        size += len(content)
        if size > MOST_BYTES:
            raise _too_much(path, f"more than {MOST_BYTES >> 20} MiB, and no more")
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("xb") as stream:
            stream.write(content)
    return size


def _find(guest: Guest, path: str, tests: list[str], deadline: Deadline) -> list[str]:
    # The trailing dot makes find follow the folder itself if it is a link, and no other link.
    start = f"{path}/."
    argv = ["find", start, "-xdev", *tests, "-print0"]
    result = guest.run(argv, time_limit=max(deadline.left(), _LEAST))
    if result.status != 0:
        raise GuestError(f"{path} of the guest cannot be listed: {complaint(result.stderr)}")
    if len(result.stdout) > _LONGEST_LIST:
        raise _too_much(path, f"more names than {MOST_FILES} files can have, and at most {MOST_FILES} files")
    return [os.fsdecode(entry).removeprefix(f"{start}/") for entry in result.stdout.split(b"\0") if entry]


def _is_plain(name: str) -> bool:
    """Whether a relative path of the guest stays below the copy and is printable."""
    parts = name.split("/")
    return name.isprintable() and all(
        part not in ("", ".", "..") and len(os.fsencode(part)) <= _LONGEST for part in parts
    )


def _too_much(path: str, what: str) -> GuestError:
    hint = f"choose a folder in it, or have the command pack it: tar -czf /tmp/packed.tar.gz -C {path} ."
    return GuestError(f"{path} of the guest has {what} are copied", hint=hint)
