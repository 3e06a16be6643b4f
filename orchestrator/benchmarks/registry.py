# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of benchmark.

A kind is a folder beside this file: its ``kind.py`` has a ``KIND``, which plans and measures, its ``report.py`` has a
``REPORT``, which prints. They are imported separately, because a report loads no guest code.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.experiment.kind_registry import KindRegistry
    from orchestrator.report.table_report import ReportRegistry
    from orchestrator.results.contract import RunRecord
    from orchestrator.results.modelled import ModelledCell
    from orchestrator.run.benchmark_kind import BenchmarkKind

NAMES = ("calls", "attaching", "markers", "scaling", "system")


@cache
def kinds() -> KindRegistry[BenchmarkKind]:
    """Every kind, as a run needs it."""
    from orchestrator.experiment.kind_registry import KindRegistry

    return KindRegistry([partial(_kind, name) for name in NAMES])


def _kind(name: str) -> BenchmarkKind:
    kind: BenchmarkKind = import_module(f"{__package__}.{name}.kind").KIND
    return kind


@cache
def reports() -> ReportRegistry:
    """Every kind, as a report needs it."""
    from orchestrator.report.table_report import ReportRegistry  # tables and charts, which a measurement does not load

    return ReportRegistry([import_module(f"{__package__}.{name}.report").REPORT for name in NAMES], _ModelledTimes())


class _ModelledTimes:
    """The modelled times of a run, kept until another is asked for: a report asks for those of its run five times."""

    def __init__(self) -> None:
        self._last: tuple[RunRecord, Mapping[str, ModelledCell]] | None = None

    def __call__(self, run: RunRecord) -> Mapping[str, ModelledCell]:
        if not any(cell.executed is not None for cell in run.cells):
            return {}
        if self._last is None or self._last[0] is not run:
            from orchestrator.model.modelled_run import modelled_times  # reads price lists as experiments are read

            self._last = run, modelled_times(run)
        return self._last[1]
