# SPDX-License-Identifier: GPL-2.0-only
"""Guests ready for measuring: restored or booted, checked, their modules loaded.

A machine's first guest is booted, saved in the cache, and then restored like all later ones, so that the way a guest
came to be makes no difference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.saved_guests import discard, saved_guest
from orchestrator.errors import EvidenceError, GuestError, HostError, LabError, UnsupportedError
from orchestrator.guest.console import plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_files import SharedMemory
from orchestrator.guest.machine import Machine
from orchestrator.guest.saved_state import SavedGuest
from orchestrator.guest.saving_and_restoring import restore_guest, save_guest
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, ModuleMemory
from orchestrator.results.faults import check_room
from orchestrator.run.guest_checks import OtherPace, check_clocksource, check_cpus, check_pace, wait_for_clocksource
from orchestrator.steps import step

_EMPTY_LOOP = ("callbench", "-n", "1", "-r", "1")
_TICKS = re.compile(r"^empty tsc=(\d{1,18}) ", re.MULTILINE)
_TICKS_FILE, _SYMBOLS_FILE = "empty-loop", "symbols"

_BOOTS = 4
"""Attempts to get a guest with the host's pace. On two CPUs with a dozen busy processes one ran 70 seconds in 6."""

_given_up: set[Machine] = set()
"""Machines whose guests could not be saved or restored in this process: it does not try again."""


def unwatched(guest: Guest) -> None:
    """Watch no guest."""
    del guest


def can_be_restored(machine: Machine) -> bool:
    """Whether guests of a machine may be restored.

    Excluded are guests whose nanoseconds are used, on KVM, with a session on the console, on a network of guests (whose
    other guests stay in use), or with a disk that the lab did not make.
    """
    is_users_disk = machine.root is not None and machine.root.is_users
    is_bound = machine.keeps_time or machine.timing == "kvm" or machine.channel == "serial" or machine.lan is not None
    return not (is_bound or is_users_disk)


GuestT = TypeVar("GuestT", bound=Guest)


def start_guest(
    context: BuildContext, guest: GuestT, *, watch: Callable[[Guest], None] = unwatched, fresh: bool = False
) -> GuestT:
    """Restore a guest that is off if possible, or boot it (always with ``fresh``); returns it.

    ``watch`` gets it before it runs, and a guest that is booted to be saved. A saved guest that does not restore, or
    fails the checks, is discarded with a warning, and the guest is booted. Raises GuestError if it does not boot,
    HostError.
    """
    start = _Start(context, guest, watch)
    start.begin(guest)
    if fresh or guest.machine in _given_up or not can_be_restored(guest.machine):
        guest.boot()
    elif not start.is_restored():
        guest.kill()
        guest.renew()
        start.begin(guest)
        guest.boot()
    return guest


@dataclass(frozen=True)
class _Start:
    context: BuildContext
    guest: Guest
    watch: Callable[[Guest], None]

    def begin(self, guest: Guest) -> None:
        guest.say = self.context.say
        self.watch(guest)

    def is_restored(self) -> bool:
        """Restore the guest from its machine's saved one, which is made if there is none. Raises as ``_save`` does."""
        guest, saved = self.guest, None
        try:
            # Before the saved guest's lock: its holder must not wait for slots of a guest whose owner waits for the
            # lock.
            guest.take_slots()
            saved = self._saved()
            if saved is None:
                return False
            version = saved.version
            restore_guest(guest, saved)
            with step("check the restored guest"):
                _check(guest, saved)
        except BaseException as error:
            guest.kill()
            if saved is None or guest.is_aborted or not isinstance(error, LabError):
                raise
            check_room(guest.directory)
            if isinstance(error, HostError):  # not the saved guest's fault
                self._give_up(f"no guest can be restored: {error.what}")
            else:
                discard(self.context, self.guest.machine, version)
                self._give_up(f"the saved guest {saved.key} is discarded: {error.what}")
            return False
        return True

    def _saved(self) -> SavedGuest | None:
        try:
            return saved_guest(self.context, self.guest.machine, self._save)
        except (GuestError, UnsupportedError):  # ended by another thread, or the kernel refuses its CPU
            raise
        except (OSError, LabError) as error:  # LabError: another user's folder, or a lock that is never released
            self._give_up(f"no guest can be saved: {error.strerror if isinstance(error, OSError) else error.what}")
            return None

    def _save(self, saved: SavedGuest) -> None:
        """Boot a guest, let it settle, and save it; try again if its kernel mistakes the TSC's frequency."""
        for left in reversed(range(_BOOTS)):
            try:
                self._save_one(saved)
            except OtherPace as error:
                if not left:
                    raise HostError(error.what) from None
            else:
                return

    def _save_one(self, saved: SavedGuest) -> None:
        # A saved guest does not count instructions: machines that differ only in what does share it.
        machine = replace(self.guest.machine, counter=None, coverage=None)
        with SharedMemory(machine.memory_mib) as memory:
            saving = Guest(machine, self.guest.directory, self.guest.name, memory=memory)
            saving.core_file = self.guest.core_file
            self.begin(saving)
            with saving:
                self._save_settled(saving, saved)

    def _save_settled(self, guest: Guest, saved: SavedGuest) -> None:
        try:
            if guest.machine.timing == "instructions":
                wait_for_clocksource(guest)
                (saved.folder / _TICKS_FILE).write_text(f"{_empty_loop(guest)}\n")
                # Each restored one would list the same again, in up to 98 million instructions.
                (saved.folder / _SYMBOLS_FILE).write_bytes(guest.get(KALLSYMS, largest=KALLSYMS_MAX))
            else:
                check_pace(guest)
            save_guest(guest, saved)
        except (GuestError, EvidenceError) as error:
            if guest.is_aborted:
                raise
            raise HostError(error.what, where=error.where, detail=error.detail) from None

    def _give_up(self, why: str) -> None:
        _given_up.add(self.guest.machine)
        self.context.warn(f"warning: {why}; the guest is booted")


def _check(guest: Guest, saved: SavedGuest) -> None:
    """Raise EvidenceError unless a restored guest is the saved machine, at the same speed; its symbols are then known.

    An empty batch takes as many TSC ticks as before: 28 on i386 if an instruction takes a nanosecond, 56 if it takes
    two, and thousands without the instruction clock.
    """
    check_cpus(guest)
    if guest.machine.timing != "instructions":
        return
    check_clocksource(guest)
    try:
        expected = int((saved.folder / _TICKS_FILE).read_text())
        guest.saved_symbols = (saved.folder / _SYMBOLS_FILE).read_bytes()
    except (OSError, ValueError):  # discarded by another process meanwhile
        raise EvidenceError("it is not known what an empty loop took before, or which symbols the kernel has") from None
    ticks = _empty_loop(guest)
    if ticks != expected:
        raise EvidenceError(f"an empty loop took {ticks} ticks in the restored guest, and {expected} before")


def _empty_loop(guest: Guest) -> int:
    match = _TICKS.search(guest.succeed(_EMPTY_LOOP).text)
    if match is None:
        raise GuestError("callbench does not say how long an empty loop takes")
    return int(match[1])


def load_kernel_modules(guest: Guest, names: Iterable[str]) -> None:
    """Load modules from the guest's /lib/modules; loaded ones stay.

    Raises GuestError if modprobe fails, GuestOops, EvidenceError if the kernel does not list one afterwards.
    """
    modules = list(names)
    mark = guest.console.length()
    for name in modules:
        with step(f"load {name}"):
            result = guest.run(["modprobe", name])
        guest.check_console(mark)
        if result.status != 0:
            raise GuestError(
                f"the guest's kernel does not load its module {name}",
                detail=plain_lines(result.stderr)[-5:],
            )
    listed = ModuleMemory.all_of(guest) if modules else {}
    for name in modules:
        if name not in listed:
            raise EvidenceError(f"module {name} was loaded, and the guest's kernel does not list it as live")
