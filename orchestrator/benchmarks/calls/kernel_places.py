# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel's image says of the places that cells probe, before anything boots."""

from __future__ import annotations

from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.calls.probe_kinds import call_probe
from orchestrator.benchmarks.calls.probed_place import code_with, probed_place
from orchestrator.benchmarks.calls.task import CallCell
from orchestrator.experiment.program_point import in_program
from orchestrator.probes.placement import ProbePlace, means_of, places_of, refusal_of


class KernelPlaces:
    """The places of one boot's kernel and modules, each function decoded once."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._functions: dict[str, dict[int, ProbePlace]] = {}

    def refusal(self, cell: CallCell) -> str | None:
        """Why no kernel takes the cell's kind of probe at the point that the experiment names; None where one may."""
        kind = call_probe(cell.task.probe)
        if cell.task.point is None or in_program(cell.task.point) is not None:
            return None
        place = None if means_of(kind) is None else self._at(cell, *probed_place(self._kernel, cell, kind))
        return None if place is None else refusal_of(kind, place)

    def _at(self, cell: CallCell, symbol: str, offset: int) -> ProbePlace | None:
        """The instruction at a cell's place; None where the code is not at hand, or has none there."""
        if symbol not in self._functions:
            code = code_with(self._kernel, cell, symbol)
            found = None if code is None else places_of(code, self._kernel.config, symbol)
            self._functions[symbol] = {} if found is None else {one.offset: one for one in found.places}
        return self._functions[symbol].get(offset)
