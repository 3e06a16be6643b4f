# SPDX-License-Identifier: GPL-2.0-only
"""A guest into files and out of them: one that is saved for many others, and one that is kept as it is."""

from __future__ import annotations

import contextlib
from pathlib import Path

from orchestrator.deadline import Deadline
from orchestrator.errors import GuestError
from orchestrator.guest.channel import COMMAND_LIMIT
from orchestrator.guest.guest_files import GuestFiles, make_restored_files
from orchestrator.guest.life import GuestLife, State
from orchestrator.guest.opening import open_channel
from orchestrator.guest.overlay import check_overlay, keep_overlay
from orchestrator.guest.renewal import renew
from orchestrator.guest.running_qemu import HostFiles
from orchestrator.guest.saved import (
    SavedGuest,
    begin_console,
    keep_files,
    load_devices,
    load_whole,
    save_devices,
    save_whole,
)
from orchestrator.steps import step

RESTORE_LIMIT = 60.0
"""Host seconds from QEMU's start to the channel of a restored guest, which takes 0.3 on an idle core."""

_PAUSE = ("sleep", "0.1")


class SavableGuest(GuestLife):
    """A guest that can be saved and restored, and kept and reopened."""

    def restore(self, saved: SavedGuest, time_limit: float = RESTORE_LIMIT) -> None:
        """Go on where a guest of this machine was saved, as another one. On failure nothing is left running.

        The console's log begins with what was printed before. The clock of a guest that is not on the exact clock is
        set, its random pool is another, and one in an image has a name, a machine-id and keys of its own.
        """
        with self._starting("restore", "being restored", "restored"):
            with step("start QEMU"):
                self._files = make_restored_files(self.machine, saved.overlay, self._directory, self._name)
                begin_console(saved, self.console.path)
                self._start(HostFiles(self.console.path, memory=saved.memory))
            assert self._qemu.monitor is not None
            deadline = Deadline(time_limit)
            with step("load the devices"):
                load_devices(self._qemu.monitor, saved.state)
            with step("wait for the agent"), self._qemu.drained_console():
                # On the exact clock an idle guest's time runs ahead: it finds the request when it goes on.
                ping = self._agent.send_ping()
                self._qemu.monitor.command("cont")
                self._agent.wait_for_answer(ping, time_limit)
                renew(self._agent, self.machine, self._files.identity)
            with step(f"open the {self.machine.channel} channel"):
                self._channel = open_channel(self._qemu, self.machine, self._keys, deadline)
        self.restored_from = saved.key

    def save(self, saved: SavedGuest) -> None:
        """Write the guest into the folder of a saved one, and end it. Raises GuestError, OSError."""
        with step(f"save {self._name}"), self._explained("being saved"):
            if self._qemu.monitor is None or self._memory is None or self.state is not State.READY:
                raise GuestError(f"a guest that is {self.state} cannot be saved, nor one with memory of QEMU's own")
            self._leave_channel()
            save_devices(self._qemu.monitor, saved.state)
            keep_files(saved, self._memory, self._written, self.console.path)
            if self._files is not None and self._files.base is not None:
                check_overlay(saved.overlay, self._files.base)
        self.kill()

    def keep(self, saved: SavedGuest) -> None:
        """Write the whole guest, its memory with its devices, into a folder, and end it. Raises GuestError, OSError.

        Any guest may be kept, in whatever state its kernel is; but none with a session on its console.
        """
        with step(f"keep {self._name}"), self._explained("being kept"):
            if self._qemu.monitor is None or self.pid is None or self.state not in (State.READY, State.PAUSED):
                raise GuestError("a guest that has ended cannot be kept")
            if self.machine.channel == "serial":
                raise GuestError("a guest with a session on its console cannot be kept")
            if self.state is State.READY:
                with contextlib.suppress(GuestError):  # the agent may be what has failed
                    self._leave_channel()
            save_whole(self._qemu.monitor, saved.state)
            if self.machine.root is not None:
                assert self._written is not None
                assert self._files is not None
                assert self._files.base is not None
                keep_overlay(self.machine.root, self._written, self._files.base, saved.overlay)
        self.kill()

    def reopen(self, saved: SavedGuest, time_limit: float = RESTORE_LIMIT) -> None:
        """Go on as the guest that was kept: nothing of it is another. Its commands go to the agent.

        What it has written to ``saved.overlay`` is removed. On failure nothing is left running.
        """
        with self._starting("reopen", "being reopened", "reopened"):
            with step("start QEMU"):
                if self.machine.root is not None:
                    self._files = GuestFiles(overlay=saved.overlay, base=self.machine.root.base)
                self._start(HostFiles(self.console.path, is_kept=True))
            assert self._qemu.monitor is not None
            with step("load the memory and the devices"):
                load_whole(self._qemu.monitor, saved.state)
            with step("wait for the agent"):
                ping = self._agent.send_ping()
                self._qemu.monitor.command("cont")
                self._agent.wait_for_answer(ping, time_limit)
            self._channel = self._agent

    @property
    def _written(self) -> Path | None:
        """What the guest has written to its disk: the overlay, whose name is gone."""
        return None if self._overlay is None else Path(f"/proc/self/fd/{self._overlay}")

    def _leave_channel(self) -> None:
        """Close an SSH connection: nothing of it is to be in the guest's state."""
        if self._channel is not self._agent:
            assert self._channel is not None
            self._channel.close()
            # sshd notices, and the connection is gone from QEMU's network.
            self._agent.run(_PAUSE, time_limit=COMMAND_LIMIT)
