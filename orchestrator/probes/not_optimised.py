# SPDX-License-Identifier: GPL-2.0-only
"""Why has the kernel not put a jump in place of a kprobe's int3? By its switch, its other probes, and its image."""

from __future__ import annotations

import re
from collections.abc import Mapping

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.probes.evidence import JUMP_BYTES, KPROBES_LIST
from orchestrator.probes.optimiser import OPTIMISATION
from orchestrator.probes.placement import function_places
from orchestrator.probes.point import ProbePoint

_LISTED = re.compile(r"^([0-9a-f]{8,16}) +[krj] +(\S{1,200})", re.MULTILINE)
_UNKNOWN = "neither the kernel's image nor its list of probes shows a reason"


def why_not_optimised(guest: Guest, code: KernelCode | None, config: Mapping[str, str], point: ProbePoint) -> str:
    """What keeps the kernel from optimising a kprobe at a point that has none just now; ``code`` is its image.

    As far as it is known: the boot may have put other code there, and a handler of the probe's own keeps it an int3.
    """
    if kernel_value(guest, OPTIMISATION) == "0":
        return f"the kernel's optimisation of kprobes is switched off: {OPTIMISATION} is 0"
    near = _near(guest, point)
    if near is not None:
        return f"another kprobe is under the jump, at {near}"
    return (None if code is None else _by_image(code, config, point)) or _UNKNOWN


def _near(guest: Guest, point: ProbePoint) -> str | None:
    """Another kprobe whose bytes the jump would cover (arch_check_optimized_kprobe() of kprobes/opt.c)."""
    listing = guest.get(KPROBES_LIST).decode("ascii", errors="replace")
    for address, name in _LISTED.findall(listing):
        if 0 < int(address, 16) - point.address < JUMP_BYTES:
            return str(name)
    return None


def _by_image(code: KernelCode, config: Mapping[str, str], point: ProbePoint) -> str | None:
    """What the kernel's image says against a jump at a point of the kernel itself, or leaves to its boot."""
    if point.module is not None or code.function(point.symbol) is None:
        return None
    places = function_places(code, config, point.symbol).places
    verdict = next((one.verdicts["optimised"] for one in places if one.offset == point.offset), None)
    return None if verdict is None else verdict.reason
