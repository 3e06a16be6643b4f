# SPDX-License-Identifier: GPL-2.0-only
"""Files on the host: temporary folders, bounded reads, atomic writes, free disk space."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import LabError, UsageError


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_bounded(file: Path, largest: int) -> bytes | None:
    """The content of a file that others wrote; None if it has more than ``largest`` bytes. Raises OSError."""
    with file.open("rb") as opened:
        content = opened.read(largest + 1)
    return None if len(content) > largest else content


def read_bounded_text(file: Path, largest: int) -> str | None:
    """The same of UTF-8 text, in characters; lines end in a line feed. Raises OSError, UnicodeDecodeError."""
    content = read_bounded(file, 4 * largest)  # UTF-8 has up to four bytes a character
    if content is None:
        return None
    text = content.decode().replace("\r\n", "\n").replace("\r", "\n")
    return None if len(text) > largest else text


def is_open_file(path: Path, descriptor: int) -> bool:
    """Whether ``path`` still names the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except OSError:
        return False


def is_file(path: Path | str) -> bool:
    """Whether ``path`` is a file. Raises OSError if nobody can tell, which Path.is_file has not since Python 3.14."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116  # of a text, too
    except ValueError:  # a NUL in it
        return False
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return False
        raise


class ScratchFolder:
    """A temporary folder named ``prefix`` and some letters, in ``parent`` or the host's temporary folder.

    Its process holds a lock on it and calls ``remove`` with ``close`` or at the end of the context. This user's folders
    of the same prefix that no process has locked were left by killed processes; they are removed first. Raises OSError.
    """

    def __init__(self, prefix: str, parent: Path | None = None, remove: Callable[[Path], object] | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        self._remove = remove or partial(shutil.rmtree, ignore_errors=True)
        _remove_abandoned(prefix, parent, self._remove)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            with contextlib.suppress(FileNotFoundError):
                descriptor = _opened(self.path)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if is_open_file(self.path, descriptor):
                    self._descriptor: int | None = descriptor
                    return
                os.close(descriptor)
            # Another process removed it as abandoned before it was locked.

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._remove(self.path)
        finally:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:  # a second close could hit another file
                os.close(descriptor)


def _remove_abandoned(prefix: str, parent: Path, remove: Callable[[Path], object]) -> None:
    for folder in parent.glob(f"{prefix}*"):
        # It has just been removed, cannot be opened, is no folder, or is locked (BlockingIOError).
        with contextlib.suppress(OSError):
            descriptor = _opened(folder)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove(folder)
            finally:
                os.close(descriptor)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def private(path: str, flags: int) -> int:
    """An opener, for open(), of files that only the user can read."""
    return os.open(path, flags, 0o600)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write or replace a file atomically, text as UTF-8. Raises OSError.

    A symbolic link in its place is replaced, not followed: a run's directory may come from elsewhere. Writers wait for
    each other. The unfinished file of a killed writer is overwritten.
    """
    unfinished = path.with_name(f".{path.name}.new")
    if unfinished.is_symlink():
        unfinished.unlink(missing_ok=True)
    with _alone(unfinished) as file:
        try:
            file.truncate()
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def _alone(unfinished: Path) -> Iterator[BinaryIO]:
    while True:
        with open(unfinished, "wb", opener=_as_it_is) as file:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            if is_open_file(unfinished, file.fileno()):
                yield file
                return
        # Another writer renamed it meanwhile.


def _as_it_is(path: str, flags: int) -> int:
    """Open without following a link, and without truncating a file that another process may be writing."""
    return os.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW, 0o666)


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_LEAST = 64 << 10
"""Bytes below which a disk counts as full: a program that failed for lack of room may have removed a file since."""

# English messages of dpkg, tar, gcc, make and apt 2.6, at the end of a line: a compiler quotes the user's lines as
# well. GNU ld maps the file that it writes, so a full tmpfs ends it with a bus error.
_WORDS = re.compile(
    r": (No space left on device|Disk quota exceeded|File too large)$"
    r"|have enough free space|terminated with signal 7 \[Bus error\]",
    re.MULTILINE,
)


def room_left(folder: Path) -> str:
    """The free space on a folder's disk as text: ``0.3 MB are free``. The folder need not exist yet."""
    facts = _facts(folder)
    if facts.f_files and not facts.f_favail:
        return "it has no free inode"
    return f"{_free(facts) / 1e6:.1f} MB are free"


def found_no_room(error: OSError) -> bool:
    """Whether a write, or one of several copies, failed for lack of room."""
    if isinstance(error, shutil.Error):  # of copytree(): it has each copy's message, and no number
        return any(os.strerror(number) in str(error) for number in _NO_ROOM)
    return error.errno in _NO_ROOM


def is_full(folder: Path) -> bool:
    """Whether a folder's disk is full."""
    facts = _facts(folder)
    return _free(facts) < _LEAST or (facts.f_files > 0 and not facts.f_favail)


def full_one(folders: Sequence[Path]) -> Path:
    """The first of the folders on a full disk, else the first of all."""
    return next(filter(is_full, folders), folders[0])


def is_lack_of_room(error: BaseException, folders: Iterable[Path]) -> bool:
    """Whether an error comes from a full disk, by its errno, a program's message, or the state of the folders."""
    if isinstance(error, OSError):
        return found_no_room(error)
    return isinstance(error, LabError) and (_WORDS.search(str(error)) is not None or any(map(is_full, folders)))


def temporary_folder() -> Path | None:
    """The folder of temporary files; None where none is writable, as on a full disk."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return None


def _facts(folder: Path) -> os.statvfs_result:
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if os.access(parent, os.F_OK))
    return os.statvfs(existing)


def _free(facts: os.statvfs_result) -> int:
    # An ext4 reserves 5 % for root.
    return (facts.f_bfree if os.geteuid() == 0 else facts.f_bavail) * facts.f_frsize


def check_writable(*files: Path | None) -> None:
    """Raise UsageError for files that cannot be written."""
    for file in files:
        if file is None:
            continue
        folder = file.absolute().parent
        if file.is_dir():
            raise UsageError("expected a file to write, and this is a folder", where=str(file))
        if not folder.is_dir():
            raise UsageError("this folder does not exist", where=str(folder))
        if not os.access(file if file.exists() else folder, os.W_OK):
            raise UsageError("no permission to write it", where=str(file))
