# SPDX-License-Identifier: GPL-2.0-only
"""Slots: how many guests run at once on this host, over all of a user's processes, and within which memory.

There are four slots per core, and no more than the memory has room for. A guest takes one per started half a gigabyte,
and returns them while it is paused. A thread that holds slots takes none for its further guests, so that it cannot
block itself. If an ancestor process holds slots, it may be waiting for this one, so the wait ends after two minutes.
The system releases the slots of a process that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from orchestrator.errors import HostError
from orchestrator.paths import cache_dir
from orchestrator.process import stat_fields

# The memory control groups' files of this process, whose names differ between version 1 and 2.

_GROUPS = Path("/proc/self/cgroup")
_MOUNTED = Path("/sys/fs/cgroup")


def memory_files(version_1: str, version_2: str) -> Iterator[list[Path]]:
    """For each hierarchy that counts memory, the file of that name in the own group, then in its ancestors.

    The files may be missing: the root group has few files, and a hierarchy may not be mounted.
    """
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)  # cgroups(7)
        group = Path(path.lstrip("/"))
        folders = (group, *group.parents)
        if not controllers:
            yield [_MOUNTED / folder / version_2 for folder in folders]
        elif "memory" in controllers.split(","):
            yield [_MOUNTED / "memory" / folder / version_1 for folder in folders]


# The memory for the lab and its guests: the host's, or less if a control group limits it.
#
# A group's limit is in ``memory.max`` (version 2) or ``memory.limit_in_bytes`` (version 1) of its folder. The limits of
# its ancestors apply too.


def host_memory_mib() -> int:
    """MiB that this process and its children may use."""
    least = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in itertools.chain.from_iterable(memory_files("memory.limit_in_bytes", "memory.max")):
        with contextlib.suppress(OSError, ValueError):  # not mounted, the root group, or "max"
            least = min(least, int(file.read_text()))
    return least >> 20


def check_memory(memory_mib: int) -> None:
    """Raise HostError for a guest that cannot fit into the memory, before the OOM killer ends its QEMU."""
    available = host_memory_mib()
    if memory_mib > available:
        raise HostError(
            f"a guest with {memory_mib} MiB of memory does not fit: the lab may have {available} MiB on this host",
            hint="give the guest less memory, or the lab's control group more (memory.max; version 1:"
            " memory.limit_in_bytes)",
        )


_FOLDER = "slots"
_GATE = "gate"
"""Locked by the one process that is acquiring slots; others queue on it, so none holds half of its slots."""

_SLOT_MIB = 512
_SLOTS_A_CORE = 4
_PATIENCE = 3600.0
"""Host seconds to wait; then a guest starts without slots."""

_PATIENCE_WITH_ANCESTORS = 120.0
"""The same if an ancestor process holds slots: it may be waiting for this one."""

_POLL_INTERVAL = 0.05
_SAY_INTERVAL = 30.0


_holders: set[Slots] = set()
"""The guests that run, by their slots."""


class Slots:
    """The slots of one guest; empty for a further guest of its thread."""

    def __init__(self, descriptors: list[int]) -> None:
        self._descriptors = descriptors
        self.thread = threading.current_thread()  # release() may run in another one
        _holders.add(self)

    def release(self) -> None:
        """Return the slots, from any thread; a second call does nothing."""
        _holders.discard(self)
        while self._descriptors:
            descriptor = self._descriptors.pop()
            os.ftruncate(descriptor, 0)
            os.close(descriptor)


def host_slots() -> int:
    """The number of slots on this host, within the lab's control group."""
    return max(1, min(_SLOTS_A_CORE * len(os.sched_getaffinity(0)), host_memory_mib() // _SLOT_MIB))


def take_slots(memory_mib: int, say: Callable[[str], None], check: Callable[[], None]) -> Slots:
    """Take a guest's slots when they are free. ``say`` gets a line if it has to wait.

    ``check`` is called while waiting, and may raise. After an hour (two minutes if an ancestor process holds slots), or
    if the cache cannot be written, the guest starts without slots. Raises HostError for a guest that cannot fit into
    the memory.
    """
    check_memory(memory_mib)
    if any(holder.thread is threading.current_thread() for holder in list(_holders)):
        return Slots([])
    total = host_slots()
    count = min(total, -(-memory_mib // _SLOT_MIB))
    folder = cache_dir() / _FOLDER
    taken: list[int] = []
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _wait(folder, lambda: _lock(folder / _GATE, taken), say, check)
        gate = taken.pop()
        try:
            _wait(folder, lambda: _lock_some(folder, total, count, taken), say, check)
        finally:
            os.close(gate)
    except OSError:  # TimeoutError is one
        pass
    except BaseException:
        for descriptor in taken:
            os.close(descriptor)
        raise
    return Slots(taken)


def _wait(folder: Path, succeeds: Callable[[], bool], say: Callable[[str], None], check: Callable[[], None]) -> None:
    """Raises TimeoutError after waiting so long that success is unlikely."""
    begun, last_said = time.monotonic(), 0.0
    while not succeeds():
        check()
        now = time.monotonic()
        if now - begun > _PATIENCE or (now - begun > _PATIENCE_WITH_ANCESTORS and _ancestor_holds_slots(folder)):
            say("other guests on this host do not end; this one starts anyway")
            raise TimeoutError
        if now - last_said > _SAY_INTERVAL:
            last_said = now
            say("waiting for other guests on this host to end")
        time.sleep(_POLL_INTERVAL)


def _ancestor_holds_slots(folder: Path) -> bool:
    """Whether an ancestor of this process holds slots."""
    holders: set[str] = set()
    for file in folder.iterdir():
        holders |= set(file.read_text(encoding="ascii", errors="replace").split())
    process = str(os.getppid())
    while process != "0" and process not in holders:
        _, process, *_ = stat_fields(process) or ("gone", "0")  # its state, and its parent
    return process in holders


def _lock_some(folder: Path, total: int, count: int, taken: list[int]) -> bool:
    """Take free slots until enough are taken; returns whether they are."""
    for number in range(total):
        if len(taken) < count and _lock(folder / str(number), taken):
            os.ftruncate(taken[-1], 0)
            os.pwrite(taken[-1], str(os.getpid()).encode(), 0)
    return len(taken) == count


def _lock(file: Path, taken: list[int]) -> bool:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    except OSError:
        os.close(descriptor)
        raise
    taken.append(descriptor)
    return True
