# SPDX-License-Identifier: GPL-2.0-only
"""A guest's memory in a file of ours, which can be kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.guest.machine import MemoryFile

_PIECE = 1 << 20
_ZEROS = bytes(4096)


class SharedMemory:
    """Memory that a guest shares with us, ``mib`` MiB: a file without a name. Closed at the context's end."""

    def __init__(self, mib: int) -> None:
        self.descriptor = os.memfd_create("guest-memory")
        self._size = mib << 20
        os.ftruncate(self.descriptor, self._size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    @property
    def file(self) -> MemoryFile:
        """The file as QEMU finds it, which inherits the descriptor."""
        return MemoryFile(f"/proc/self/fd/{self.descriptor}", is_saved=False)

    def write(self, target: Path) -> None:
        """Write what the guest has touched into a new sparse file, private to the user. Raises OSError."""
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0) as file:
            end = 0
            while (begin := self._next_data(end)) is not None:
                end = os.lseek(self.descriptor, begin, os.SEEK_HOLE)
                for place in range(begin, end, _PIECE):
                    _write_sparsely(file.fileno(), os.pread(self.descriptor, min(_PIECE, end - place), place), place)
            os.ftruncate(file.fileno(), self._size)

    def _next_data(self, place: int) -> int | None:
        try:
            return os.lseek(self.descriptor, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise


def _write_sparsely(file: int, piece: bytes, place: int) -> None:
    """Write the pages of a piece that are not zero: a guest's kernel has cleared many."""
    begin = None
    for at in range(0, len(piece) + 1, len(_ZEROS)):
        empty = at >= len(piece) or piece[at : at + len(_ZEROS)] == _ZEROS
        if begin is None and not empty:
            begin = at
        elif begin is not None and empty:
            _write_all(file, piece[begin:at], place + begin)
            begin = None


def _write_all(file: int, data: bytes, place: int) -> None:
    written = 0
    while written < len(data):  # a full disk may take a part of it first
        written += os.pwrite(file, data[written:], place + written)
