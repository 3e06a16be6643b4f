# SPDX-License-Identifier: GPL-2.0-only
"""A saved guest: its memory, the state of its devices, its disk's overlay, and its console output.

The state excludes memory (capability x-ignore-shared): a restored guest maps the file privately, so it reads a page
on first access, and never writes to the file. QEMU compares hardly anything of a machine with the state that it
loads: a state from another clock, CPU or kernel loads silently. So a saved guest belongs to one machine (see
``artifacts.saved_guests``), and callers that restore it must verify the result.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestHang, HostError
from orchestrator.files import private
from orchestrator.guest.guest_files import SharedMemory
from orchestrator.guest.monitor import Monitor
from orchestrator.guest.qemu_command import MemoryFile

_BANDWIDTH = 1 << 40
"""Bytes a second; QEMU's default limit is 128 MiB."""


_STATE_LIMIT = 60.0
"""Host seconds to save or load the devices' state, half a megabyte."""


_POLL_INTERVAL = 0.002


@dataclass(frozen=True)
class SavedGuest:
    """The folder of a saved guest, private to the user, as it contains keys; ``key`` identifies the machine."""

    key: str
    folder: Path

    @property
    def memory(self) -> MemoryFile:
        """Its memory, which QEMU opens for writing even to map it privately."""
        return MemoryFile(str(self.memory_file), is_saved=True)

    @property
    def memory_file(self) -> Path:
        return self.folder / "memory"

    @property
    def state(self) -> Path:
        return self.folder / "devices"

    @property
    def version(self) -> tuple[int, int] | None:
        """Changes when another process saves the same guest anew; None if there is none."""
        try:
            facts = self.state.stat()
        except FileNotFoundError:
            return None
        return facts.st_ino, facts.st_mtime_ns

    @property
    def console(self) -> Path:
        return self.folder / "console"

    @property
    def overlay(self) -> Path:
        """What the guest had written to its image's disk; absent without an image."""
        return self.folder / "overlay"


def save_state(monitor: Monitor, target: Path, *, has_memory: bool) -> None:
    """Stop a guest and write its devices' state, with ``has_memory`` also its memory.

    Its disks are then on the host. Raises GuestError, OSError.
    """
    monitor.command("stop")
    _prepare(monitor, has_memory=has_memory)
    with open(target, "xb", opener=private) as file, monitor.migration_file(file.fileno()) as uri:
        monitor.command("migrate", uri=uri)
        _wait_for_migration(monitor)


def load_state(monitor: Monitor, source: Path, *, has_memory: bool) -> None:
    """Load a written state into a machine that waits for it; its CPUs stay stopped. Raises GuestError."""
    _prepare(monitor, has_memory=has_memory)
    try:
        with source.open("rb") as file, monitor.migration_file(file.fileno()) as uri:
            monitor.command("migrate-incoming", uri=uri)
            _wait_for_migration(monitor)
    except OSError as error:
        raise GuestError(f"the saved guest cannot be read: {error.strerror}", where=str(source)) from None


def keep_files(saved: SavedGuest, memory: SharedMemory, overlay: Path | None, console: Path) -> None:
    """Write a stopped guest's files besides its devices' state. Raises OSError."""
    memory.write(saved.memory_file)
    for source, target in ((overlay, saved.overlay), (console, saved.console)):
        if source is not None:
            shutil.copyfile(source, target)
            target.chmod(0o400)
    saved.state.chmod(0o400)


def begin_console(saved: SavedGuest, log: Path) -> None:
    """Start a restored guest's log with the saved guest's console output. Raises HostError."""
    try:
        log.unlink(missing_ok=True)
        shutil.copyfile(saved.console, log)
    except OSError as error:
        raise HostError(f"the console's log cannot be written: {error.strerror}", where=str(log)) from None


def _prepare(monitor: Monitor, *, has_memory: bool) -> None:
    capability = {"capability": "x-ignore-shared", "state": not has_memory}
    monitor.command("migrate-set-capabilities", capabilities=[capability])
    monitor.command("migrate-set-parameters", **{"max-bandwidth": _BANDWIDTH})


def _wait_for_migration(monitor: Monitor) -> None:
    deadline = Deadline(_STATE_LIMIT)
    while True:
        answer = monitor.command("query-migrate")
        status = answer.get("status") if isinstance(answer, dict) else None
        if status == "completed":
            return
        if status in ("failed", "cancelled"):
            raise GuestError("QEMU cannot save or load the state of the guest's devices")
        if not deadline.left():
            raise GuestHang(f"QEMU did not save or load the guest's devices within {_STATE_LIMIT:g} s")
        time.sleep(_POLL_INTERVAL)
