# SPDX-License-Identifier: GPL-2.0-only
"""A probe module in a guest: loaded, armed, switched to counting and back, unloaded."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator

from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import CommandFailed, EvidenceError, GuestError, LabError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import Observation, check_armed, check_untouched, observe
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import LoadedModule

_OPTIMISER_LIMIT = 10.0
"""Host seconds until a jump must be in place, or gone: the kernel's optimiser works in the background, ticks later."""

_OPTIMISATION = "/proc/sys/debug/kprobes-optimization"
_CHECK_INTERVAL = 0.02


class Attachment:
    """A loaded probe module. Made by ``attached``."""

    def __init__(self, guest: Guest, kind: ProbeKind, module: Module, point: ProbePoint) -> None:
        self._guest = guest
        self._kind = kind
        self._module = module
        self.point = point

    def parameter(self, name: str) -> str:
        """What the module reports of itself."""
        path = f"/sys/module/{self._module.name}/parameters/{name}"
        return self._guest.get(path).decode("ascii", errors="replace").strip()

    def count(self, on: bool) -> None:
        """Switch between the no-op handler and the counting one; the registration stays as it is."""
        self._guest.put(b"1" if on else b"0", f"/sys/module/{self._module.name}/parameters/counting")

    def hits(self) -> int:
        """Hits since counting began. Raises EvidenceError when the kernel had to let any pass."""
        missed = self._number("missed")
        if missed:
            raise EvidenceError(f"the kernel skipped the handler {missed} times")
        return self._number("hits")

    def wait_until_armed(self) -> Observation:
        """Wait until both witnesses agree on the mechanism. Raises EvidenceError with what they say instead."""
        seen = _observe_until(
            self._guest,
            self._kind,
            self.point,
            lambda seen: check_armed(self._kind.mechanism, self.point, seen, "after loading"),
        )
        if int(self.parameter("address"), 16) != self.point.address:
            raise EvidenceError(f"the module's probe is at {self.parameter('address')}, not at {self.point.name}")
        return seen

    def detour(self, seen: Observation) -> str | None:
        """The range of a djprobe's detour buffer, after checking that the jump leads into it and it is the module's.

        None for other mechanisms. A jump into the kernel's own optimiser's buffer is not a djprobe.
        """
        if self._kind.mechanism != "jmp":
            return None
        found = re.fullmatch(r"([0-9a-f]{1,16}) (\d{1,6})", self.parameter("detour"))
        if found is None:
            raise EvidenceError(f"the module reports no detour buffer: {self.parameter('detour')!r}")
        start, size = int(found[1], 16), int(found[2])
        memory = LoadedModule.of(self._guest, self._module.name)
        if not memory.start <= start < start + size <= memory.end:
            raise EvidenceError(f"the detour buffer at {start:#x} is not in module {self._module.name}")
        target = self.point.address + (seen.jump_target or 0)
        if not start <= target < start + size:
            raise EvidenceError(
                f"the jump at {self.point.name} leads to {target:#x}, not into the detour at {start:#x}"
            )
        return f"{start:#x}-{start + size:#x}"

    def _number(self, name: str) -> int:
        text = self.parameter(name)
        if not text.isdecimal():
            raise EvidenceError(f"the module reports {name}={text[:40]!r}")
        return int(text)


@contextlib.contextmanager
def attached(guest: Guest, kind: ProbeKind, module: Module, point: ProbePoint) -> Iterator[Attachment]:
    """Load a probe module, and unload it at the end.

    Raises EvidenceError when the module is refused (with its own reason from the kernel's log), or when the original
    bytes are not back after unloading.
    """
    check_untouched(point, observe(guest, point), "before loading")
    guest.put(b"1" if kind.optimisation else b"0", _OPTIMISATION)
    target = f"/tmp/{module.name}.ko"  # noqa: S108 - in the guest
    guest.put(module.file, target)
    _load(guest, module, target)
    try:
        yield Attachment(guest, kind, module, point)
    except LabError as error:
        # What failed is the news; whether unloading works as well is not. A guest in trouble is not asked.
        if not isinstance(error, GuestError):
            with contextlib.suppress(CommandFailed):
                guest.succeed(["rmmod", module.name])
        raise
    guest.succeed(["rmmod", module.name])
    _observe_until(guest, kind, point, lambda seen: check_untouched(point, seen, "after unloading"))


def _observe_until(
    guest: Guest, kind: ProbeKind, point: ProbePoint, check: Callable[[Observation], None]
) -> Observation:
    """Look at a probe point until the check passes: at once, but for the kernel's optimiser, which takes its time."""
    deadline = time.monotonic() + _OPTIMISER_LIMIT
    while True:
        seen = observe(guest, point)
        try:
            check(seen)
        except EvidenceError:
            if kind.mechanism != "jump" or time.monotonic() > deadline:
                raise
        else:
            return seen
        time.sleep(_CHECK_INTERVAL)


def _load(guest: Guest, module: Module, target: str) -> None:
    mark = guest.console.length()
    result = guest.run(["insmod", target])
    if result.status == 0:
        return
    log = guest.run(["dmesg"]).text
    said = [line for line in log.splitlines() if f"{module.name}: " in line][-5:]
    reason = said[-1].partition(f"{module.name}: ")[2] if said else result.stderr.decode(errors="replace").strip()
    guest.check_console(mark)
    raise EvidenceError(f"module {module.name} was not accepted by the guest's kernel: {reason}", detail=said)
