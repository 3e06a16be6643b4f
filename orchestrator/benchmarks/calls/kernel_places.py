# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel's image says of the places that cells probe, before anything boots."""

from __future__ import annotations

from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.probe_kinds import call_probe
from orchestrator.benchmarks.calls.probed_place import probed_place
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.experiment.program_point import in_program
from orchestrator.probes.placement import RULES_OF, ProbePlace, function_places, means_of, refusal_of
from orchestrator.probes.static_point import wrong_point_reason


class KernelPlaces:
    """The places of one kernel, each function decoded once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._functions: dict[str, dict[int, ProbePlace]] = {}

    @property
    def are_certain(self) -> bool:
        """Whether the rules are this kernel's: those of a user's own, or of another version, may be others."""
        return self._kernel.spec.version == RULES_OF

    def refusal(self, cell: CallCell) -> str | None:
        """Why the running kernel would refuse the cell's kind of probe at the point that the experiment names.

        None where it takes it, where the boot decides, and where the rules are not certain to be this kernel's.
        """
        kind = call_probe(cell.task.probe)
        if not self.are_certain or cell.task.point is None or in_program(cell.task.point) is not None:
            return None
        place = None if means_of(kind) is None else self.at(*probed_place(self._kernel, cell, kind))
        return None if place is None else refusal_of(kind, place)

    def at(self, symbol: str, offset: int) -> ProbePlace | None:
        """The instruction at a place of the kernel's own; None where the image is not at hand, or has none there."""
        if symbol not in self._functions:
            self._functions[symbol] = self._function(symbol)
        return self._functions[symbol].get(offset)

    def _function(self, symbol: str) -> dict[int, ProbePlace]:
        code = self._kernel.code
        if code is None or wrong_point_reason(code, symbol, None) is not None:
            return {}
        return {one.offset: one for one in function_places(code, self._kernel.config, symbol).places}
