# SPDX-License-Identifier: GPL-2.0-only
"""A lab for the cost of kernel probes: boot, probe, measure, prove, tabulate.

``Lab`` is what programs use (docs/library.md). Its parts are loaded when they are named: ``import orchestrator`` alone
loads nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.comparison.comparison import ComparedRuns as ComparedRuns
    from orchestrator.comparison.series import MeasuredSeries as MeasuredSeries
    from orchestrator.cost.call_finder import NamedCalls as NamedCalls
    from orchestrator.cost.request import CostRequest as CostRequest
    from orchestrator.errors import GuestError as GuestError
    from orchestrator.errors import LabError as LabError
    from orchestrator.errors import UsageError as UsageError
    from orchestrator.experiment.experiment import Experiment as Experiment
    from orchestrator.experiment.plan import Plan as Plan
    from orchestrator.guest.guest import Guest as Guest
    from orchestrator.library.bisected_change import BisectedChange as BisectedChange
    from orchestrator.library.experiment_request import ExperimentRequest as ExperimentRequest
    from orchestrator.library.function_probes import Disassembly as Disassembly
    from orchestrator.library.lab import Lab as Lab
    from orchestrator.library.measured_costs import MeasuredCosts as MeasuredCosts
    from orchestrator.library.tested_guest import TestedGuest as TestedGuest
    from orchestrator.profile.stored.profile_difference import ProfileDifference as ProfileDifference
    from orchestrator.results.contract import CellRecord as CellRecord
    from orchestrator.results.runs import Run as Run
    from orchestrator.results.store import RunEntry as RunEntry
    from orchestrator.run.runner import ProgressListener as ProgressListener
    from orchestrator.run.runner import TimeLeft as TimeLeft
    from orchestrator.version import __version__ as __version__

_PLACES = {
    "BisectedChange": "library.bisected_change",
    "CellRecord": "results.contract",
    "ComparedRuns": "comparison.comparison",
    "CostRequest": "cost.request",
    "Disassembly": "library.function_probes",
    "Experiment": "experiment.experiment",
    "ExperimentRequest": "library.experiment_request",
    "Guest": "guest.guest",
    "GuestError": "errors",
    "Lab": "library.lab",
    "LabError": "errors",
    "MeasuredCosts": "library.measured_costs",
    "MeasuredSeries": "comparison.series",
    "NamedCalls": "cost.call_finder",
    "Plan": "experiment.plan",
    "ProfileDifference": "profile.stored.profile_difference",
    "ProgressListener": "run.runner",
    "Run": "results.runs",
    "RunEntry": "results.store",
    "TestedGuest": "library.tested_guest",
    "TimeLeft": "run.runner",
    "UsageError": "errors",
}
__all__ = list(_PLACES)
_PLACES["__version__"] = "version"


if not TYPE_CHECKING:  # type checkers have the imports

    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'orchestrator' has no attribute '{name}'")
        return getattr(import_module(f"orchestrator.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
