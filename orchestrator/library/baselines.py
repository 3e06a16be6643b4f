# SPDX-License-Identifier: GPL-2.0-only
"""Baselines: names for stored runs, set and removed."""

from __future__ import annotations

from orchestrator.paths import lab_dir
from orchestrator.results.runs import Run, find_run, opened_store
from orchestrator.results.store import Store, check_baseline_name, unknown_baseline


def set_baseline(name: str, run_name: str) -> tuple[Run, str | None]:
    """Make a run this baseline; returns the run, and the id of the run that had the name before.

    Raises UsageError for a wrong name or an unknown run.
    """
    check_baseline_name(name)
    run = find_run(run_name, lab_dir())
    with Store.open(lab_dir()) as store:
        before = store.baselines().get(name)
        store.set_baseline(name, run.record.run)
    return run, None if before is None else before.run


def remove_baseline(name: str) -> None:
    """Remove a name; its run stays. Raises UsageError for an unknown name."""
    with opened_store() as store:
        if store is None:
            raise unknown_baseline(name, {})
        store.remove_baseline(name)
