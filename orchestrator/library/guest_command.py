# SPDX-License-Identifier: GPL-2.0-only
"""A command in a guest: what is prepared for it, the files that it leaves, and what its kernel reports meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from orchestrator.errors import GuestError
from orchestrator.guest.channel import Listener
from orchestrator.guest.guest import Guest
from orchestrator.library.fetched_files import SCRATCH, FetchedFiles
from orchestrator.library.guest_trouble import unexpected_trouble, with_kernel_reports

GUEST_COMMAND_LIMIT = 600.0
"""Default time limit in host seconds of a command that a guest is started for."""

_NOT_FOUND = 127
"""Status of a missing program, from the guest's agent and from shells."""


@dataclass(frozen=True)
class GuestCommand:
    """A command that a guest is started for."""

    argv: Sequence[str]
    files: FetchedFiles
    """What is copied from the guest after the command."""
    time_limit: float = GUEST_COMMAND_LIMIT
    """Host seconds for the command, and for each file or folder that is copied."""
    has_modprobe: bool = False
    """Whether the guest has modprobe and the kernel's modules."""

    def run(
        self,
        guest: Guest,
        listener: Listener,
        prepare: Callable[[Guest], None],
        debugged: Callable[[Guest], AbstractContextManager[None]],
    ) -> int:
        """Prepare the guest, run the command with an empty ``/scratch``, and copy the files; returns its status.

        ``listener`` gets the command's output; the command runs in the context of ``debugged``. Raises GuestError,
        with the reports of the guest's kernel, for what fails and for reports and a taint that are not expected; its
        exit status is the command's if that has failed.
        """
        status = 0
        try:
            prepare(guest)
            guest.make_folder(SCRATCH)
            with debugged(guest):
                status = guest.run(self.argv, time_limit=self.time_limit, listener=listener).status
            if status == _NOT_FOUND:
                guest.say(self._not_found())
            self.files.fetch(guest, self.time_limit)
        except GuestError as error:
            failure = with_kernel_reports(error, guest)
            failure.exit_status = status or failure.exit_status
            raise failure from None
        guest.drain_console()
        trouble = unexpected_trouble(guest)
        if trouble is not None:
            trouble.exit_status = status or trouble.exit_status
            raise trouble
        return status

    def _not_found(self) -> str:
        """The note for status 127, which shells also return for a missing program of their command."""
        program = self.argv[0]
        words = f"note: status {_NOT_FOUND}: the guest lacks the program {program!r}, or one that it calls"
        if program.rpartition("/")[2] == "modprobe" and not self.has_modprobe:
            words += "\nhint: --kernel-modules adds modprobe and the kernel's own modules"
        return words
