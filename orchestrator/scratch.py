# SPDX-License-Identifier: GPL-2.0-only
"""A temporary folder that does not outlive its process for long: the next one to make its own removes what is left."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType


class ScratchFolder:
    """A folder of ours, named ``prefix`` and some letters, in ``parent`` or where the host has such folders.

    ``path`` is it; so is the value of its context, which removes it. Its process holds a lock on it. Those of this user
    and prefix that nobody holds were left by processes that were killed: they are removed first. Raises OSError.
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_abandoned(prefix, parent)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
            with contextlib.suppress(FileNotFoundError):
                descriptor = _opened(self.path)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if _is(self.path, descriptor):
                    self._descriptor: int | None = descriptor
                    return
                os.close(descriptor)
            # Another process took it for abandoned before it had its lock.

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder, if that was not done yet."""
        shutil.rmtree(self.path, ignore_errors=True)
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:  # closed again, it could be another file's
            os.close(descriptor)


def _remove_abandoned(prefix: str, parent: Path) -> None:
    for folder in parent.glob(f"{prefix}*"):
        # It has just been removed, is not ours to open, is no folder, or is held: BlockingIOError.
        with contextlib.suppress(OSError):
            descriptor = _opened(folder)
            try:
                if os.fstat(descriptor).st_uid == os.geteuid():
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _opened(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _is(folder: Path, descriptor: int) -> bool:
    """Whether the open folder is still the one of that name."""
    try:
        return os.path.samestat(folder.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
