# SPDX-License-Identifier: GPL-2.0-only
"""How many of a run's instructions were the instrumentation's own, as its profile tells.

Instrumentation is the code of the kernel's markers, the module beside the work with its hooks, handlers and detours,
code that was made while the guest ran (slots in which kprobes execute a copy of an instruction, optimised kprobes'
detours), and the int3 or the jump at each probe point. What the kernel executes for a trap is not among it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.probes.recorder_report import Site
from orchestrator.probes.symbols import ModuleMemory
from orchestrator.profile.counts import Code, Region
from orchestrator.profile.places import Places


@dataclass(frozen=True)
class Instrumentation:
    """Where it is: the ``markers``' code, the ``module``'s memory, the probe points' ``sites``, and ``places``."""

    places: Places
    markers: Sequence[range]
    module: ModuleMemory | None
    sites: Sequence[Site]
    _known: dict[int, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def executed(self, region: Region) -> int:
        """How many instructions of a region are the instrumentation's."""
        armed = self._armed
        return sum(
            counts.executed for code, counts in region.counts.items() if self._is_own(code.address) or code in armed
        )

    @property
    def _armed(self) -> Mapping[Code, Site]:
        """The instructions at the probe points, as they are while it records."""
        return {Code(site.address, _first(site.live).hex()): site for site in self.sites}

    def _is_own(self, address: int) -> bool:
        if address not in self._known:
            in_module = self.module is not None and self.module.start <= address < self.module.end
            made = address >= self.places.kernel_start and self.places.owner(address).place == "generated"
            self._known[address] = in_module or made or any(address in one for one in self.markers)
        return self._known[address]


def _first(live: bytes) -> bytes:
    """The instruction that a probe has put there: an int3 is one byte, a jump is five."""
    return live[:1] if live[:1] == b"\xcc" else live[:5]
