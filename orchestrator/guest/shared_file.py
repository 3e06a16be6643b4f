# SPDX-License-Identifier: GPL-2.0-only
"""A file that QEMU writes and the lab reads. It is in memory, has no name on a disk, and ends with its last process."""

from __future__ import annotations

import os


class SharedFile:
    """An empty file of the host's memory (``memfd_create(2)``); QEMU gets its descriptor."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("orchestrator", os.MFD_CLOEXEC)

    def take(self) -> bytes:
        """What is in the file, which is empty afterwards: a kernel's text would stay in the host's memory."""
        size = os.fstat(self.descriptor).st_size
        with open(self.descriptor, "rb", buffering=0, closefd=False) as file:
            file.seek(0)
            content = file.read(size)
        os.ftruncate(self.descriptor, 0)
        return content

    def close(self) -> None:
        """Close the lab's descriptor."""
        os.close(self.descriptor)
