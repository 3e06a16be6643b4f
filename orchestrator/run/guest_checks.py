# SPDX-License-Identifier: GPL-2.0-only
"""What a guest must be before anything is measured in it: the CPU it claims, all CPUs up, its final clocksource."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from orchestrator.catalog.cpus import CpuModel
from orchestrator.errors import EvidenceError, LabError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value

CLOCKSOURCE = "tsc"
"""The only one measured on: the others are devices, read at a cost of their own."""

EARLY_CLOCKSOURCE = "tsc-early"
"""The same counter, until the kernel has measured its frequency once more."""

_CLOCKSOURCE_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_CPUS = "/sys/devices/system/cpu"
_UPTIME_FILE = "/proc/uptime"
_UPTIME = re.compile(r"([0-9]{1,10}\.[0-9]{2}) [0-9]{1,12}\.[0-9]{2}")
_LARGEST = 1 << 20
"""Bytes of /proc/cpuinfo, which has 1.5 KB for each CPU."""
_SETTLING_POLLS = 100
"""Each 0.2 s of the guest's time, of which the kernel refines the TSC's frequency for one second before it settles."""

_PACE = 1.1
"""How many times faster or slower than the host's a guest's clock may surely be."""
_PACE_SECONDS = 1.0
"""Of the host's, between the looks at both clocks that are compared."""
_PACE_ERROR = 0.05
"""Relative, of those seconds: a busy host takes long to read a guest's clock."""
_PACE_LOOKS = 50


def read_clocksource(guest: Guest) -> str:
    """The guest kernel's clocksource just now."""
    return kernel_value(guest, _CLOCKSOURCE_FILE)


def check_cpus(guest: Guest) -> None:
    """Raise EvidenceError unless the guest takes its CPU for that of its machine, and has as many, arranged as asked.

    All have to be up, and an even number of Intel's to be pairs of siblings.
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
        raise EvidenceError(f"the guest does not take its CPU for a {cpu.name}", detail=wrong)


def _check_topology(guest: Guest, text: str) -> None:
    smp = guest.machine.smp
    up = len(re.findall(r"^processor\s*:", text, re.MULTILINE))
    if up != smp:
        raise EvidenceError(f"the guest has {up} CPUs up, not {smp}")
    if smp % 2 or "GenuineIntel" not in text:
        return
    siblings = [kernel_value(guest, f"{_CPUS}/cpu{number}/topology/thread_siblings_list") for number in range(smp)]
    if len(set(siblings)) != smp // 2 or not re.search(r"^flags\s*:.* ht\b", text, re.MULTILINE):
        found = [f"cpu{number}: siblings {pair}" for number, pair in enumerate(siblings)]
        raise EvidenceError("the guest's CPUs are not pairs of Hyper-Threading siblings", detail=found)


def wait_for_clocksource(guest: Guest) -> None:
    """Wait until the guest is on the clocksource that is measured on. Raises EvidenceError where it never is."""
    for _ in range(_SETTLING_POLLS):
        current = read_clocksource(guest)
        if current == CLOCKSOURCE:
            return
        # Lets the guest's own time pass: on the exact clock it stands still while nothing waits in the guest.
        guest.succeed(["sleep", "0.2"])
    raise EvidenceError(f"the guest's clocksource is {current}, not {CLOCKSOURCE}")


class OtherPace(LabError):
    """A guest's clock goes at another pace than the host's: its kernel has mistaken the TSC's frequency."""


def check_pace(guest: Guest) -> None:
    """Raise OtherPace where a guest's clock surely goes at another pace than the host's.

    A kernel that measures the TSC by a timer on a busy host may find any frequency: one was seen to run 151 seconds
    ahead in 20. How long a reading takes is no error: the host's time before and after it are bounds.
    """
    first = _look(guest)
    for _ in range(_PACE_LOOKS):
        guest.succeed(["sleep", "0.2"])
        last = _look(guest)
        least, most = last.before - first.after, last.after - first.before
        if least > _PACE_SECONDS and most - least < _PACE_ERROR * least:
            break
    passed = last.uptime - first.uptime
    if not least / _PACE < passed < most * _PACE:
        raise OtherPace(f"the guest's clock went on by {passed:.2f} s in {least:.2f} to {most:.2f} s of the host's")


@dataclass(frozen=True)
class _Look:
    """A reading of a guest's clock, and of the host's before and after it; in seconds."""

    before: float
    uptime: float
    after: float


def _look(guest: Guest) -> _Look:
    before = time.monotonic()
    text = kernel_value(guest, _UPTIME_FILE)
    uptime = _UPTIME.fullmatch(text)
    if uptime is None:
        raise EvidenceError(f"the guest does not say how long it has run: {text[:40]!r}", where=_UPTIME_FILE)
    return _Look(before, float(uptime[1]), time.monotonic())
