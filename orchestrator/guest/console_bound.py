# SPDX-License-Identifier: GPL-2.0-only
"""How much may a guest make QEMU write into its logs? A guest that goes beyond is ended.

The limit of a process's files (RLIMIT_FSIZE) is none for QEMU: its threads block SIGXFSZ, and QEMU 7.2 goes on where a
write of the console's log fails. So a thread looks at the files' sizes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

CONSOLE_MAX = 256 << 20
"""Bytes; a night of a kernel's own tests prints a few megabytes."""

_INTERVAL = 1.0
"""Seconds between two looks; an emulated serial port prints a few megabytes in one."""


class ConsoleBound:
    """Watches files that grow, until it is stopped; ``end`` is called once, where one has more than ``largest`` bytes.

    ``exceeded`` is that file.
    """

    def __init__(self, files: Sequence[Path], largest: int, end: Callable[[], None]) -> None:
        self.largest = largest
        self.exceeded: Path | None = None
        self._files, self._end = files, end
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="console bound", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Watch no longer."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(_INTERVAL):
            for file in self._files:
                if _size(file) > self.largest:
                    self.exceeded = file
                    self._end()
                    return


def _size(file: Path) -> int:
    with contextlib.suppress(OSError):  # not there yet, or on a file system that has gone
        return file.stat().st_size
    return 0
