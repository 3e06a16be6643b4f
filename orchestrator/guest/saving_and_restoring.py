# SPDX-License-Identifier: GPL-2.0-only
"""Guests saved, from which others are restored, and kept, to go on themselves.

A saved guest has shared memory and an unused kernel, and any number of copies. A kept guest is one of any state,
such as that of a failed test; it can be reopened once.
"""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest, State
from orchestrator.guest.guest_files import GuestFiles, make_restored_files
from orchestrator.guest.machine import Machine
from orchestrator.guest.overlay import check_overlay, keep_overlay
from orchestrator.guest.saved_state import SavedGuest, begin_console, keep_files, load_state, save_state
from orchestrator.guest.written_state import WrittenState

RESTORE_LIMIT = 60.0
"""Host seconds for a restored guest's devices and its agent; takes 0.3 on an idle core."""


def save_guest(guest: Guest, saved: SavedGuest) -> None:
    """Write a guest with shared memory into a saved guest's folder, and end it. Raises GuestError, OSError."""
    memory = guest.memory
    if memory is None or guest.state is not State.READY:
        raise GuestError(f"a guest that is {guest.state} cannot be saved, nor one with memory of QEMU's own")
    with guest.written_out("save", "saved") as parts:
        guest.leave_channel()
        save_state(parts.monitor, saved.state, has_memory=False)
        keep_files(saved, memory, parts.written, guest.console.path)
        if parts.base is not None:
            check_overlay(saved.overlay, parts.base)


def restore_guest(guest: Guest, saved: SavedGuest, time_limit: float = RESTORE_LIMIT) -> None:
    """Have a guest that is off continue as a copy of a saved guest of its machine. On failure nothing is left running.

    The console's log begins with what was printed before saving. Off the exact clock the guest's clock is set and its
    random pool reseeded; in an image it gets its own host name, machine-id and keys. Raises GuestError, HostError.
    """

    def make_files(machine: Machine, console: Path) -> GuestFiles:
        begin_console(saved, console)
        return make_restored_files(machine, saved.overlay, guest.directory, guest.name)

    load = partial(load_state, source=saved.state, has_memory=False)
    guest.continue_from(WrittenState("restore", "restored", make_files, saved.memory, load), time_limit)
    guest.restored_from = saved.key


def keep_whole_guest(guest: Guest, saved: SavedGuest) -> None:
    """Write a whole guest, memory and devices, into a folder, and end it. Raises GuestError, OSError.

    Works for any state of its kernel, but not with a session on its console.
    """
    if guest.pid is None or guest.state not in (State.READY, State.PAUSED):
        raise GuestError("a guest that has ended cannot be kept")
    if guest.machine.channel == "serial":
        raise GuestError("a guest with a session on its console cannot be kept")
    with guest.written_out("keep", "kept") as parts:
        if guest.state is State.READY:
            with contextlib.suppress(GuestError):  # the agent itself may have failed
                guest.leave_channel()
        save_state(parts.monitor, saved.state, has_memory=True)
        if guest.machine.root is not None:
            assert parts.written is not None
            assert parts.base is not None
            keep_overlay(guest.machine.root, parts.written, parts.base, saved.overlay)


def reopen_guest(guest: Guest, saved: SavedGuest, time_limit: float = RESTORE_LIMIT) -> None:
    """Have a guest that is off continue as the kept guest itself, with its identity; the agent is its channel.

    Removes what it has written to ``saved.overlay``. On failure nothing is left running. Raises GuestError.
    """

    def make_files(machine: Machine, console: Path) -> GuestFiles:
        del console  # it begins anew
        return GuestFiles() if machine.root is None else GuestFiles(overlay=saved.overlay, base=machine.root.base)

    load = partial(load_state, source=saved.state, has_memory=True)
    guest.continue_from(WrittenState("reopen", "reopened", make_files, None, load, is_kept=True), time_limit)
