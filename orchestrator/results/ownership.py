# SPDX-License-Identifier: GPL-2.0-only
"""Which runs of a store does a living process work on? Each run has a byte of a file, which that process has locked.

The system releases a lock with its holder, however that ends, so that a run whose process was killed is known at once,
by a reader who may write nothing. Looking takes no lock (``F_OFD_GETLK``): a reader never keeps a process from a run.

The lock is of an open file (Linux 3.15), with no process number in it. It holds between containers and pid namespaces
that share the store's folder, and between hosts where the file system carries locks to its server: NFS does, without
``nolock`` and ``local_lock``. SQLite needs as much of that folder for the store itself. Where locks stay on one host, a
run of another host is shown as interrupted while it goes on.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from orchestrator.results.faults import storage_faults

_FLOCK = "hhqqi0q"  # struct flock of fcntl(2): type, whence, start, length, process
_TYPE = struct.Struct("h")


class Ownership:
    """The runs, by their numbers, that this process has taken through it, and a view of who has the others.

    ``file`` is beside ``store``, and as readable: who may read the results may know who makes them.
    """

    def __init__(self, file: Path, store: Path) -> None:
        self._file, self._store = file, store
        self._descriptor: int | None = None
        self._taken: set[int] = set()

    def take(self, number: int) -> bool:
        """Take a run until it is released or this process ends; False where another process has it.

        Raises HostError where the file cannot be written.
        """
        with storage_faults(self._file):
            try:
                fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, _byte(fcntl.F_WRLCK, number))
            except BlockingIOError:
                return False
        self._taken.add(number)
        return True

    def release(self, number: int) -> None:
        """Release a run; nothing for one that was not taken."""
        if number in self._taken:
            with storage_faults(self._file):
                fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, _byte(fcntl.F_UNLCK, number))
            self._taken.discard(number)

    def has_owner(self, number: int) -> bool:
        """Whether a living process has taken the run; also where the file is another user's and may not be read."""
        if number in self._taken:
            return True
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except PermissionError:
            return True
        try:
            with storage_faults(self._file):
                found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _byte(fcntl.F_RDLCK, number))
        finally:
            os.close(descriptor)
        return bool(_TYPE.unpack_from(found)[0] != fcntl.F_UNLCK)

    def close(self) -> None:
        """Release all that was taken."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._taken.clear()

    def _opened(self) -> int:
        if self._descriptor is None:
            mode = self._store.stat().st_mode & 0o777
            self._descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        return self._descriptor


def _byte(kind: int, number: int) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, number, 1, 0)
