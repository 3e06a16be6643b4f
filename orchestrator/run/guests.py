# SPDX-License-Identifier: GPL-2.0-only
"""Guests ready for measuring: restored or booted, checked, their modules loaded.

A machine's first guest is booted, saved in the cache, and then restored like all later ones, so that the way a guest
came to be makes no difference.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.saved_guests import discard, saved_guest
from orchestrator.catalog.cpus import CpuModel
from orchestrator.deadline import Deadline
from orchestrator.errors import EvidenceError, GuestError, GuestHang, HostError, LabError, UnsupportedError
from orchestrator.guest.console import plain_lines
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_files import SharedMemory
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.guest.machine import Machine
from orchestrator.guest.saved_state import SavedGuest
from orchestrator.guest.taint import taint_mask
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.placement import BLACKLIST, BLACKLIST_MAX
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX, ModuleMemory
from orchestrator.results.faults import check_room
from orchestrator.steps import step

# Checks before anything is measured in a guest: its CPU's identity, all CPUs up, the final clocksource.

CLOCKSOURCE = "tsc"
"""The only clocksource for measurements: the others are devices, whose reading has a cost."""

EARLY_CLOCKSOURCE = "tsc-early"
"""The same counter, until the kernel has measured its frequency a second time."""

_CLOCKSOURCE_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_UPTIME_FILE = "/proc/uptime"
_UPTIME = re.compile(r"([0-9]{1,10}\.[0-9]{2}) [0-9]{1,12}\.[0-9]{2}")
_LARGEST = 1 << 20
"""Bytes of /proc/cpuinfo, which has 1.5 KB for each CPU."""
_SETTLING_POLLS = 100
"""Polls of 0.2 guest seconds each; the kernel refines the TSC's frequency for one second before it settles."""

_PACE = 1.1
"""Factor by which a guest's clock may differ from the host's."""
_PACE_SECONDS = 1.0
"""Host seconds between the two readings of both clocks."""
_PACE_ERROR = 0.05
"""Maximum error relative to these seconds: on a busy host it takes long to read a guest's clock."""
_PACE_LOOKS = 50


def read_clocksource(guest: Guest) -> str:
    """The guest kernel's clocksource just now."""
    return kernel_value(guest, _CLOCKSOURCE_FILE)


def check_cpus(guest: Guest) -> None:
    """Raise EvidenceError unless the guest sees its machine's CPU model, and as many CPUs, arranged as requested.

    All must be up; an even number of Intel CPUs must be pairs of siblings.
    """
    text = guest.get("/proc/cpuinfo", largest=_LARGEST).decode("ascii", errors="replace")
    _check_identity(text, guest.machine.cpu)
    _check_topology(guest, text)


def _check_identity(text: str, cpu: CpuModel) -> None:
    if cpu.identity is None:
        return
    first = (line.partition(":") for line in text.split("\n\n")[0].splitlines())
    says = {key.strip().replace(" ", "_"): value.strip() for key, _, value in first}
    wrong = [
        f"{field}: {says.get(field, 'nothing')}, expected {value}"
        for field, value in cpu.identity.model_dump(exclude_none=True).items()
        if says.get(field) != str(value)
    ]
    if wrong:
        raise EvidenceError(f"the guest does not identify its CPU as a {cpu.name}", detail=wrong)


def _check_topology(guest: Guest, text: str) -> None:
    smp = guest.machine.smp
    up = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    if up != smp:
        raise EvidenceError(f"the guest has {up} CPUs up, not {smp}")
    if smp % 2 or "GenuineIntel" not in text:
        return
    folders = [f"/sys/devices/system/cpu/cpu{number}/topology" for number in range(smp)]
    siblings = [kernel_value(guest, f"{folder}/thread_siblings_list") for folder in folders]
    if len(set(siblings)) != smp // 2 or not re.search(r"^flags\s*:.* ht\b", text, re.MULTILINE):
        pairs = [f"cpu{number}: siblings {pair}" for number, pair in enumerate(siblings)]
        raise EvidenceError("the guest's CPUs are not pairs of Hyper-Threading siblings", detail=pairs)


def wait_for_clocksource(guest: Guest) -> None:
    """Wait until the guest is on the clocksource for measurements. Raises EvidenceError if it never is."""
    for _ in range(_SETTLING_POLLS):
        current = read_clocksource(guest)
        if current == CLOCKSOURCE:
            return
        # Lets guest time pass: on the exact clock it stands still while nothing waits in the guest.
        guest.succeed(["sleep", "0.2"])
    raise EvidenceError(f"the guest's clocksource is {current}, not {CLOCKSOURCE}")


class OtherPace(LabError):
    """A guest's clock differs in pace from the host's: its kernel has mistaken the TSC's frequency."""


def check_pace(guest: Guest) -> None:
    """Raise OtherPace if a guest's clock certainly differs in pace from the host's.

    A kernel that measures the TSC by a timer on a busy host may find any frequency: one was seen to run 151 seconds
    ahead in 20. Slow readings cause no error, as the host's time before and after each are bounds.
    """
    first_before, first, first_after = _look(guest)
    for _ in range(_PACE_LOOKS):
        guest.succeed(["sleep", "0.2"])
        before, last, after = _look(guest)
        least, most = before - first_after, after - first_before
        if least > _PACE_SECONDS and most - least < _PACE_ERROR * least:
            break
    passed = last - first
    if not least / _PACE < passed < most * _PACE:
        raise OtherPace(f"the guest's clock went on by {passed:.2f} s in {least:.2f} to {most:.2f} s of the host's")


def _look(guest: Guest) -> tuple[float, float, float]:
    """A reading of a guest's clock, between the host's before and after it; in seconds."""
    before = time.monotonic()
    text = kernel_value(guest, _UPTIME_FILE)
    uptime = _UPTIME.fullmatch(text)
    if uptime is None:
        raise EvidenceError(f"the guest does not say how long it has run: {text[:40]!r}", where=_UPTIME_FILE)
    return before, float(uptime[1]), time.monotonic()


def check_clocksource(guest: Guest) -> None:
    """Raise EvidenceError unless the guest is still on the clocksource for measurements."""
    clocksource = read_clocksource(guest)
    if clocksource != CLOCKSOURCE:
        raise EvidenceError(f"the guest's clocksource changed from {CLOCKSOURCE} to {clocksource}")


def permitted_taint(guest: Guest, also: int = 0) -> int:
    """The kernel's taint mask. Raises EvidenceError for other taints than the lab's modules cause, GuestError."""
    taint = taint_mask(guest)
    check_taint(taint, also)
    return taint


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
            guest.restore(saved)
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
            guest.save(saved)
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


# A cell's time limit.


class CellDeadline(Deadline):
    """A cell's time limit in seconds, starting now."""

    def left(self) -> float:
        """Seconds left. Raises GuestHang if none."""
        left = super().left()
        if left <= 0:
            raise GuestHang(f"the cell's time limit of {self.limit} s is over", hint="raise it: --set time_limit=...")
        return left


# A kernel's facts about its own functions, read once in a guest of its own and cached.

_LISTS = {"symbols": (KALLSYMS, KALLSYMS_MAX), "blacklist": (BLACKLIST, BLACKLIST_MAX)}


@dataclass(frozen=True)
class KernelFunctions:
    """The kernel's symbols, and its list of functions that kprobes must not touch."""

    symbols: bytes
    blacklist: bytes


def kernel_functions(
    context: BuildContext, kernel: Kernel, machine: Machine, watch: Callable[[Guest], None]
) -> KernelFunctions:
    """The lists of a kernel, the same in each boot (nokaslr). ``watch`` gets the guest before it runs.

    Raises GuestError if it does not boot.
    """

    def ask(folder: Path) -> None:
        context.say(f"asking {kernel.spec.name} for its functions")
        guest = Guest(machine, folder)
        guest.say = context.say
        watch(guest)
        with guest:
            for name, (file, largest) in _LISTS.items():
                (folder / name).write_bytes(guest.get(file, largest=largest))

    inputs = {"kernel": kernel.key, "initramfs": machine.initramfs.parent.name, "cpu": machine.cpu.name}
    artifact = context.cache.obtain("kernel-functions", inputs, f"functions of {kernel.spec.name}", ask)
    return KernelFunctions(**{name: (artifact.path / name).read_bytes() for name in _LISTS})
