# SPDX-License-Identifier: GPL-2.0-only
"""A guest that does all of its work by itself: booted with it, heard while it goes on, and asked what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.unattended import OUTPUT, STATUS, progress
from orchestrator.errors import EvidenceError, GuestError
from orchestrator.experiment.plan import Boot
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.results.faults import storage_faults
from orchestrator.run.boot_artifacts import BootArtifacts
from orchestrator.run.coordinator import Coordinator
from orchestrator.run.journal import RunJournal
from orchestrator.run.postconditions import check_clocksource, read_taint
from orchestrator.run.ready_guest import check_identity, check_topology

_SAYING_INTERVAL = 10.0
_QUOTED = 10


@dataclass(frozen=True)
class UnattendedGuest:
    """Boots guests with work in them for one boot of a plan; ``name`` is what their logs begin with."""

    coordinator: Coordinator
    journal: RunJournal
    boot: Boot
    artifacts: BootArtifacts
    name: str

    @contextmanager
    def worked(
        self,
        machine: Machine,
        write: Callable[[Path], None],
        what: str,
        time_limit: int,
        inputs: Mapping[str, str] | None = None,
    ) -> Iterator[Guest]:
        """A guest of ``machine`` that has ended its work well, for as long as it is asked about it.

        ``write`` makes its initramfs, ``what`` tells a person what it does; ``time_limit`` is in seconds without a
        word of it, ``inputs`` name the exact content of what it works on. Raises EvidenceError with the work's last
        lines, GuestError with how far it had got.
        """
        directory = self.journal.entry.directory
        name, _ = self.journal.guest_name(self.name, self.boot, 1)
        file = directory / f"{name}.initramfs"
        console = _Progress(self.journal.say, f"{self.artifacts.kernel.spec.name}, {what}")
        try:
            with storage_faults(directory):
                write(file)
            guest = Guest(replace(machine, initramfs=file), directory, name)
            self.coordinator.watch(guest)
            self.journal.say(f"booting {self.artifacts.kernel.spec.name} on {self.boot.cpu} with {what} to do")
            try:
                guest.boot(time_limit, console.line)
                file.unlink(missing_ok=True)
                self.journal.booted(name, self.artifacts, guest.command_line, inputs)
                check_identity(guest, machine.cpu)
                check_topology(guest, machine.smp)
                _check_status(guest)
                yield guest
            finally:
                guest.kill()
        except GuestError as error:
            raise GuestError(
                f"{error.what}; the work had got to: {console.latest or 'its beginning'}",
                where=error.where,
                detail=error.detail,
                hint=error.hint or f"if it was only slow: --set time_limit={2 * time_limit}",
            ) from None
        finally:
            file.unlink(missing_ok=True)


def output_of(guest: Guest) -> str:
    """What the work printed."""
    return guest.get(OUTPUT).decode("ascii", errors="replace")


def close(guest: Guest) -> int:
    """The kernel's taint after the work. Raises EvidenceError where something went wrong beside it."""
    guest.check_console()
    check_clocksource(guest)
    return read_taint(guest)


def _check_status(guest: Guest) -> None:
    status = guest.get(STATUS).decode("ascii", errors="replace").strip()
    if status != "0":
        guest.check_console()
        raise EvidenceError("the work in the guest did not end well", detail=output_of(guest).splitlines()[-_QUOTED:])


class _Progress:
    """Hears the console: what the work says of itself is passed on now and then."""

    def __init__(self, say: Callable[[str], None], what: str) -> None:
        self._say = say
        self._what = what
        self._said = time.monotonic()
        self.latest = ""

    def line(self, text: str) -> None:
        words = progress(text)
        if words is None:
            return
        self.latest = words[:200]
        if time.monotonic() - self._said > _SAYING_INTERVAL:
            self._said = time.monotonic()
            self._say(f"{self._what}: {self.latest}")
