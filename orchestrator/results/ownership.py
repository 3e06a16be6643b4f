# SPDX-License-Identifier: GPL-2.0-only
"""Which runs a process works on: each run has a byte in a file, which its process locks.

The kernel releases the lock when its holder ends in any way, so that even a read-only reader sees that a run's
process was killed. Readers take no lock (``F_OFD_GETLK``), so they never block a process.

The lock belongs to an open file (Linux 3.15), not to a process number. It works between containers and pid namespaces
that share the store's folder, and between hosts if the file system sends locks to its server, as NFS does without
``nolock`` and ``local_lock``. SQLite needs the same of the folder. If locks stay on one host, a run of another host
is shown as interrupted while it is running.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from orchestrator.results.faults import storage_faults

_FLOCK = "hhqqi0q"  # struct flock of fcntl(2): type, whence, start, length, process


class Ownership:
    """Takes runs, by their numbers, for this process, and tells which runs have an owner.

    ``file`` is in the folder of ``store`` and has its mode.
    """

    def __init__(self, file: Path, store: Path) -> None:
        self._file, self._store = file, store
        self._descriptor: int | None = None
        self._taken: set[int] = set()

    def take(self, number: int) -> bool:
        """Take a run until it is released or this process ends; False if another process has it.

        Raises HostError if the file cannot be written.
        """
        with storage_faults(self._file):
            try:
                fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, _byte(fcntl.F_WRLCK, number))
            except BlockingIOError:
                return False
        self._taken.add(number)
        return True

    def release(self, number: int) -> None:
        if number in self._taken:
            with storage_faults(self._file):
                fcntl.fcntl(self._opened(), fcntl.F_OFD_SETLK, _byte(fcntl.F_UNLCK, number))
            self._taken.discard(number)

    def has_owner(self, number: int) -> bool:
        """Whether a process has taken the run; true if the file is unreadable because it is another user's."""
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
                lock = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _byte(fcntl.F_RDLCK, number))
        finally:
            os.close(descriptor)
        return bool(struct.unpack(_FLOCK, lock)[0] != fcntl.F_UNLCK)

    def close(self) -> None:
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
