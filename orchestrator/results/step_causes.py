# SPDX-License-Identifier: GPL-2.0-only
"""What the two runs on either side of a step were not made with alike."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import LabError
from orchestrator.results.origin import OriginDifference, host_differences, origin_differences, origin_of
from orchestrator.results.steps import Step
from orchestrator.results.store import Store

_EXPERIMENT = "experiment.yaml"  # of a run's directory


def causes(store: Store, step: Step) -> Sequence[OriginDifference]:
    """What differs, the host too where a clock was read; what cannot be read of a run is said in place of it."""
    before, after = step.before, step.after
    changed = [OriginDifference("experiment", detail=(_EXPERIMENT,))] if before.digest != after.digest else []
    try:
        first, second = (
            origin_of(store.entry(point.run).directory, store.provenance(point.run)) for point in (before, after)
        )
    except LabError as error:
        return [*changed, OriginDifference("what a run was made with", detail=(f"{error.where}: {error.what}",))]
    host = host_differences(first, second) if after.clock == "wall" else []
    return [*changed, *origin_differences(first, second), *host]
