# SPDX-License-Identifier: GPL-2.0-only
"""A guest that is ready, the quickest way: restored from a saved one of its machine, or booted.

The first guest of a machine is booted, saved in the cache, and restored like all that follow, so that no guest differs
from the others by how it came to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.saved_guests import discard, saved_guest
from orchestrator.errors import EvidenceError, GuestError, HostError, LabError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.guest.memory import SharedMemory
from orchestrator.guest.saved import SavedGuest
from orchestrator.results.faults import check_room
from orchestrator.run.guest_checks import OtherPace, check_cpus, check_pace, wait_for_clocksource
from orchestrator.run.postconditions import check_clocksource
from orchestrator.steps import step

_EMPTY_LOOP = ("callbench", "-n", "1", "-r", "1")
_TICKS = re.compile(r"^empty tsc=(\d{1,18}) ", re.MULTILINE)
_TICKS_FILE = "empty-loop"

_BOOTS = 4
"""Attempts to get a guest with the host's pace. On two CPUs with a dozen busy processes one ran 70 seconds in 6."""

_given_up: set[Machine] = set()
"""Machines whose guests could not be saved or restored in this process: it does not try again."""


def unwatched(guest: Guest) -> None:
    """Watch no guest."""
    del guest


def can_be_restored(machine: Machine) -> bool:
    """Whether guests of a machine may be restored.

    Not where its nanoseconds are believed, on KVM, with a session on its console, on a network of guests (which the
    others go on using), or from a disk that the lab did not make.
    """
    is_users_disk = machine.root is not None and machine.root.is_users
    is_bound = machine.keeps_time or machine.timing == "kvm" or machine.channel == "serial" or machine.lan is not None
    return not (is_bound or is_users_disk)


def started(
    context: BuildContext,
    machine: Machine,
    directory: Path,
    name: str = "guest",
    *,
    fresh: bool = False,
    watch: Callable[[Guest], None] = unwatched,
) -> Guest:
    """A guest that is ready: restored where a guest of this machine can be, booted with ``fresh`` or where not.

    The caller ends it. ``watch`` gets each guest before it runs. A saved guest that does not restore, or is not what
    was saved, is discarded with a warning, and the guest is booted. Raises GuestError when it does not boot, HostError.
    """
    start = GuestStart(context, machine, directory, name, watch)
    return start.booted() if fresh else start.ready()


@dataclass(frozen=True)
class GuestStart:
    """One guest to start, as ``started`` says; with a ``terminal`` (a device's name) its console is there as well."""

    context: BuildContext
    machine: Machine
    directory: Path
    name: str = "guest"
    watch: Callable[[Guest], None] = unwatched
    terminal: str | None = None

    def ready(self) -> Guest:
        """The guest, the quickest way."""
        return self._restored() or self.booted()

    def booted(self) -> Guest:
        """The guest, booted."""
        guest = self._off()
        guest.boot()
        return guest

    def _off(self, memory: SharedMemory | None = None) -> Guest:
        terminal = self.terminal if memory is None else None
        # A guest that is saved counts nothing: all that differ in this alone are restored from it.
        machine = self.machine if memory is None else replace(self.machine, counter=None)
        guest = Guest(machine, self.directory, self.name, terminal=terminal, memory=memory)
        guest.say = self.context.say
        self.watch(guest)
        return guest

    def _restored(self) -> Guest | None:
        """The guest, or None where none can be saved or restored."""
        if self.machine in _given_up or not can_be_restored(self.machine):
            return None
        guest = self._off()
        try:
            # Before the saved guest's lock: who holds that must not wait for a guest whose owner waits for the lock.
            guest.take_slots()
            saved = self._saved()
        except BaseException:
            guest.kill()
            raise
        if saved is None:
            guest.kill()
            return None
        version = saved.version
        try:
            guest.restore(saved)
            with step("check the restored guest"):
                _check(guest, saved)
        except BaseException as error:
            guest.kill()
            if guest.is_aborted or not isinstance(error, LabError):
                raise
            check_room(self.directory)
            if isinstance(error, HostError):  # no fault of the saved guest's
                self._give_up(f"no guest can be restored: {error.what}")
                return None
            discard(self.context, self.machine, version)
            self._give_up(f"the saved guest {saved.key} is discarded: {error.what}")
            return None
        return guest

    def _saved(self) -> SavedGuest | None:
        try:
            return saved_guest(self.context, self.machine, self._save)
        except (GuestError, UnsupportedError):  # another thread has ended it, or the kernel refuses its CPU
            raise
        except (OSError, LabError) as error:  # LabError: a folder of another user's, or a lock that is held for ever
            self._give_up(f"no guest can be saved: {error.strerror if isinstance(error, OSError) else error.what}")
            return None

    def _save(self, saved: SavedGuest) -> None:
        """Boot a guest, let it settle, and save it; another one where its kernel mistakes the TSC's frequency."""
        for left in reversed(range(_BOOTS)):
            try:
                self._save_one(saved)
            except OtherPace as error:
                if not left:
                    raise HostError(error.what) from None
            else:
                return

    def _save_one(self, saved: SavedGuest) -> None:
        with SharedMemory(self.machine.memory_mib) as memory, self._off(memory) as guest:
            try:
                if self.machine.timing == "instructions":
                    wait_for_clocksource(guest)
                    (saved.folder / _TICKS_FILE).write_text(f"{_empty_loop(guest)}\n")
                else:
                    check_pace(guest)
                guest.save(saved)
            except (GuestError, EvidenceError) as error:
                if guest.is_aborted:
                    raise
                raise HostError(error.what, where=error.where, detail=error.detail) from None

    def _give_up(self, why: str) -> None:
        _given_up.add(self.machine)
        self.context.warn(f"warning: {why}; the guest is booted")


def _check(guest: Guest, saved: SavedGuest) -> None:
    """Raise EvidenceError unless a restored guest is the machine that was saved, at the same speed.

    A batch of no calls takes as many ticks of the TSC as before: 29 on i386 where an instruction takes a nanosecond, 58
    where it takes two, and thousands without the instruction clock.
    """
    check_cpus(guest)
    if guest.machine.timing != "instructions":
        return
    check_clocksource(guest)
    try:
        expected = int((saved.folder / _TICKS_FILE).read_text())
    except (OSError, ValueError):  # another process has discarded it meanwhile
        raise EvidenceError("it is not known how long an empty loop took before") from None
    found = _empty_loop(guest)
    if found != expected:
        raise EvidenceError(f"an empty loop took {found} ticks in the restored guest, and {expected} before")


def _empty_loop(guest: Guest) -> int:
    found = _TICKS.search(guest.succeed(_EMPTY_LOOP).text)
    if found is None:
        raise GuestError("callbench does not say how long an empty loop takes")
    return int(found[1])
