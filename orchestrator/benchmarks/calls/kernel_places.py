# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel's image says of the places that cells probe, before anything boots."""

from __future__ import annotations

from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.probe_kinds import call_probe
from orchestrator.benchmarks.calls.probed_place import code_with, probed_place
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.experiment.program_point import in_program
from orchestrator.probes.placement import RULES_OF, ProbePlace, means_of, places_of, refusal_of


class KernelPlaces:
    """The places of one boot's kernel and modules, each function decoded once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._functions: dict[str, dict[int, ProbePlace]] = {}

    @property
    def are_certain(self) -> bool:
        """Whether the rules are this kernel's: those of a user's own, or of another version, may be others."""
        return self._kernel.spec.version in RULES_OF

    def refusal(self, cell: CallCell) -> str | None:
        """Why the running kernel would refuse the cell's kind of probe at the point that the experiment names.

        None where it takes it, and where the boot decides.
        """
        kind = call_probe(cell.task.probe)
        if cell.task.point is None or in_program(cell.task.point) is not None:
            return None
        place = None if means_of(kind) is None else self.at(cell, *probed_place(self._kernel, cell, kind))
        return None if place is None else refusal_of(kind, place)

    def at(self, cell: CallCell, symbol: str, offset: int) -> ProbePlace | None:
        """The instruction at a cell's place; None where the code is not at hand, or has none there."""
        if symbol not in self._functions:
            code = code_with(self._kernel, cell, symbol)
            found = None if code is None else places_of(self._kernel, code, symbol)
            self._functions[symbol] = {} if found is None else {one.offset: one for one in found.places}
        return self._functions[symbol].get(offset)
