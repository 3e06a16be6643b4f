# SPDX-License-Identifier: GPL-2.0-only
"""A guest that was saved: its memory, the state of its devices, its disk's overlay, what it had printed.

Memory is not in the state (the capability x-ignore-shared): a restored guest maps the file privately, so that it reads
a page when it first touches it, and never writes to the file. QEMU compares hardly anything of a machine with the state
that it loads: a guest that ran with another clock, CPU or kernel loads silently. So a saved guest belongs to one
machine (see ``artifacts.saved_guests``), and who restores one must check what came of it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError, GuestHang, HostError
from orchestrator.guest.machine import MemoryFile
from orchestrator.guest.memory import SharedMemory
from orchestrator.guest.monitor import Monitor

_Capabilities = list[dict[str, object]]

_STATE_NAME = "state"
_IGNORE_SHARED = "x-ignore-shared"
_DEVICES: _Capabilities = [{"capability": _IGNORE_SHARED, "state": True}]
_WHOLE: _Capabilities = [{"capability": _IGNORE_SHARED, "state": False}]
_BANDWIDTH = 1 << 40
"""Bytes a second; by itself QEMU limits it to 128 MiB."""

_STATE_LIMIT = 60.0
"""Host seconds for the state of the devices, which has half a megabyte."""

_POLL_INTERVAL = 0.002


@dataclass(frozen=True)
class SavedGuest:
    """The folder of a saved guest, private to the user: memory and disk hold keys. ``key`` names what it is of."""

    key: str
    folder: Path

    @property
    def memory(self) -> MemoryFile:
        """Its memory, which QEMU opens for writing even where it maps it privately."""
        return MemoryFile(str(self.memory_file), is_saved=True)

    @property
    def memory_file(self) -> Path:
        return self.folder / "memory"

    @property
    def state(self) -> Path:
        """Its devices, as QEMU's migration writes them."""
        return self.folder / "devices"

    @property
    def version(self) -> tuple[int, int] | None:
        """Changes where another process saves the same guest anew; None where there is none."""
        try:
            facts = self.state.stat()
        except FileNotFoundError:
            return None
        return facts.st_ino, facts.st_mtime_ns

    @property
    def console(self) -> Path:
        """What was on its console."""
        return self.folder / "console"

    @property
    def overlay(self) -> Path:
        """What it had written to the disk of its image; there is none without an image."""
        return self.folder / "overlay"


def save_devices(monitor: Monitor, target: Path) -> None:
    """Stop a guest and write the state of its devices; its disks are on the host then. Raises GuestError, OSError."""
    _write(monitor, target, _DEVICES)


def save_whole(monitor: Monitor, target: Path) -> None:
    """As ``save_devices``, with the memory in the state. Raises GuestError, OSError."""
    _write(monitor, target, _WHOLE)


def _write(monitor: Monitor, target: Path, capabilities: _Capabilities) -> None:
    monitor.command("stop")
    _prepare(monitor, capabilities)
    with _opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as file:
        monitor.pass_descriptor(_STATE_NAME, file)
        monitor.command("migrate", uri=f"fd:{_STATE_NAME}")
        _wait_for(monitor, "completed")


def load_devices(monitor: Monitor, source: Path) -> None:
    """Give a machine that waits for it the state of its devices; its CPUs are stopped then. Raises GuestError."""
    _read(monitor, source, _DEVICES)


def load_whole(monitor: Monitor, source: Path) -> None:
    """As ``load_devices``, from a state with the memory in it. Raises GuestError."""
    _read(monitor, source, _WHOLE)


def _read(monitor: Monitor, source: Path, capabilities: _Capabilities) -> None:
    _prepare(monitor, capabilities)
    try:
        with _opened(source, os.O_RDONLY) as file:
            monitor.pass_descriptor(_STATE_NAME, file)
            monitor.command("migrate-incoming", uri=f"fd:{_STATE_NAME}")
    except OSError as error:
        raise GuestError(f"the saved guest cannot be read: {error.strerror}", where=str(source)) from None
    _wait_for(monitor, "completed")


def keep_files(saved: SavedGuest, memory: SharedMemory, overlay: Path | None, console: Path) -> None:
    """Write what a stopped guest has besides its devices. Raises OSError."""
    memory.write(saved.memory_file)
    for source, target in ((overlay, saved.overlay), (console, saved.console)):
        if source is not None:
            shutil.copyfile(source, target)
            target.chmod(0o400)
    saved.state.chmod(0o400)


def begin_console(saved: SavedGuest, log: Path) -> None:
    """Begin a restored guest's log with what was on the saved one's console. Raises HostError."""
    try:
        log.unlink(missing_ok=True)
        shutil.copyfile(saved.console, log)
    except OSError as error:
        raise HostError(f"the console's log cannot be written: {error.strerror}", where=str(log)) from None


@contextmanager
def _opened(file: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(file, flags | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _prepare(monitor: Monitor, capabilities: _Capabilities) -> None:
    monitor.command("migrate-set-capabilities", capabilities=capabilities)
    monitor.command("migrate-set-parameters", **{"max-bandwidth": _BANDWIDTH})


def _wait_for(monitor: Monitor, wanted: str) -> None:
    deadline = Deadline(_STATE_LIMIT)
    while True:
        answer = monitor.command("query-migrate")
        status = answer.get("status") if isinstance(answer, dict) else None
        if status == wanted:
            return
        if status in ("failed", "cancelled"):
            raise GuestError("QEMU cannot save or load the state of the guest's devices")
        if not deadline.left():
            raise GuestHang(f"QEMU did not save or load the guest's devices within {_STATE_LIMIT:g} s")
        time.sleep(_POLL_INTERVAL)
