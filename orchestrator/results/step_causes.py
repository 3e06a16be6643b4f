# SPDX-License-Identifier: GPL-2.0-only
"""What the two runs on either side of a step were not made with alike, as far as it reaches the cell."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import LabError
from orchestrator.results.history import Metric, Point
from orchestrator.results.origin import Origin, OriginDifference, host_differences, origin_differences, origin_of
from orchestrator.results.steps import Step
from orchestrator.results.store import Store

_KEPT = 16
_EXPERIMENT = "experiment.yaml"  # of a run's directory


class Origins:
    """What the runs of a store were made with; the last ones that were asked for are not read again.

    A provenance of 10 000 cells has 3 MB, and the metrics of an experiment have their steps at the same runs.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[str, Origin] = {}

    def of(self, run: str) -> Origin:
        """What a run was made with. Raises as ``origin_of`` does."""
        origin = self._known.pop(run, None)
        if origin is None:
            origin = origin_of(self.store.entry(run).directory, self.store.provenance(run))
        self._known[run] = origin
        if len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        return origin


def causes(origins: Origins, step: Step, metric: Metric) -> Sequence[OriginDifference]:
    """What differs, the host too where a clock was read; what cannot be read of a run is said in place of it.

    Other kernels and other cells' modules are left out: a run has many, and those did not change this cell's cost.
    """
    before, after = step.before, step.after
    changed = [OriginDifference("experiment", detail=(_EXPERIMENT,))] if before.digest != after.digest else []
    try:
        first, second = (_origin(origins, point, metric.cell) for point in (before, after))
    except LabError as error:
        return [*changed, OriginDifference("what a run was made with", detail=(f"{error.where}: {error.what}",))]
    host = host_differences(first, second) if after.clock == "wall" else []
    return [*changed, *origin_differences(first, second), *host]


def _origin(origins: Origins, point: Point, cell: str) -> Origin:
    """What the cell was measured with in a run."""
    origin = origins.of(point.run)
    query = "SELECT json_extract(record, '$.kernel') AS kernel FROM cells WHERE run = ? AND id = ?"
    kernel = origins.store.select(query, point.run, cell)[0]["kernel"]
    boots = [
        boot.model_copy(
            update={
                "modules": {name: one for name, one in boot.modules.items() if _is_of(name, cell)},
                "inputs": {name: one for name, one in boot.inputs.items() if name == cell},
            }
        )
        for boot in origin.boots
        if boot.kernel.name == kernel
    ]
    # A record names the kernel as its boot does. Where none has that name, another version has written the file.
    return origin.model_copy(update={"boots": tuple(boots)}) if boots else origin


def _is_of(module: str, cell: str) -> bool:
    """Whether a boot's module is the cell's; of several, each has its name behind the cell's."""
    return module == cell or module.startswith(f"{cell}: ")
