# SPDX-License-Identifier: GPL-2.0-only
"""The kinds of benchmark.

A kind is a folder beside this file: its ``kind.py`` has a ``KIND``, which plans and measures, its ``report.py`` has a
``REPORT``, which prints. They are imported separately, because a report loads no guest code.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from orchestrator.report.kind import ReportRegistry

if TYPE_CHECKING:  # guest code
    from orchestrator.experiment.table import KindRegistry
    from orchestrator.run.boot import BenchmarkKind

NAMES = ("calls", "markers", "scaling", "system")


@cache
def kinds() -> KindRegistry[BenchmarkKind]:
    """Every kind, as a run needs it."""
    from orchestrator.experiment.table import KindRegistry  # guest code, which a report does not load

    return KindRegistry(import_module(f"{__package__}.{name}.kind").KIND for name in NAMES)


@cache
def reports() -> ReportRegistry:
    """Every kind, as a report needs it."""
    from orchestrator.model.modelled_run import modelled_times

    return ReportRegistry([import_module(f"{__package__}.{name}.report").REPORT for name in NAMES], modelled_times)
