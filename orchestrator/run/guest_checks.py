# SPDX-License-Identifier: GPL-2.0-only
"""Checks before anything is measured in a guest: its CPU's identity, all CPUs up, the final clocksource, its taint."""

from __future__ import annotations

import re
import time

from orchestrator.catalog.cpus import CpuModel
from orchestrator.errors import EvidenceError, LabError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.guest.taint import taint_mask
from orchestrator.probes.evidence import check_taint

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
