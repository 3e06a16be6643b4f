# SPDX-License-Identifier: GPL-2.0-only
"""What the cells of one guest have found out, so that later ones need not: baselines, and points never entered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.benchmarks.calls.executed import Executed
from orchestrator.benchmarks.calls.figures import Figures
from orchestrator.benchmarks.calls.probe_setup import SITES_WITHOUT_POINT
from orchestrator.benchmarks.calls.task import CallCell, CallTask
from orchestrator.catalog.probes import ProbeKind
from orchestrator.errors import NotEntered
from orchestrator.probes.call_results import CallResults

_SameCalls = tuple[str, CallTask, int]


@dataclass(frozen=True)
class Baseline:
    """The figures of calls without a probe, and the cell that timed them."""

    cell_id: str
    figures: Figures


@dataclass
class Known:
    """Facts of one guest on the exact clock, whose kernel's text is proved to be the same after each cell."""

    _baselines: dict[_SameCalls, Baseline] = field(default_factory=dict)
    _switched: int = 0
    _executed: dict[_SameCalls, Executed] = field(default_factory=dict)
    _watched: dict[_SameCalls, Mapping[str, CallResults]] = field(default_factory=dict)
    _never: dict[tuple[_SameCalls, str | None], NotEntered] = field(default_factory=dict)

    def baseline(self, cell: CallCell) -> Baseline | None:
        """The baseline of the same calls, timed in this guest for another point or handler; None where none was."""
        return self._baselines.get(_same_calls(cell))

    def keep_baseline(self, cell: CallCell, figures: Figures) -> None:
        """A cell without a probe has been timed."""
        self._baselines.setdefault(_same_calls(cell), Baseline(cell.id, figures))

    def note_switched(self, switched: int) -> None:
        """The kernel has switched so many static branches: calls may cost something else after each."""
        if switched != self._switched:
            self._baselines.clear()
        self._switched = switched

    def check_entered(self, cell: CallCell, kind: ProbeKind) -> None:
        """Raise NotEntered where another probe has proved that the calls never come to the cell's point.

        Not for a user's own probe, which may have its hits from elsewhere, nor for a probe at every system call.
        """
        never = self._never.get((_same_calls(cell), cell.task.point))
        is_users = kind.file is not None or kind.has_own_programs
        is_at_point = kind.mechanism != "none" and not is_users and kind.site not in SITES_WITHOUT_POINT
        if never is not None and is_at_point:
            raise never

    def keep_not_entered(self, cell: CallCell, error: NotEntered) -> None:
        """A probe has proved that the calls never come to the cell's point."""
        self._never.setdefault(
            (_same_calls(cell), cell.task.point),
            NotEntered(error.what, hint=error.hint, detail=[*error.detail, f"seen by {cell.id}"]),
        )

    def executed(self, cell: CallCell, find: Callable[[], Executed]) -> Executed:
        """What the cell's calls execute, found out once for all cells that make the same calls."""
        same = _same_calls(cell)
        if same not in self._executed:
            self._executed[same] = find()
        return self._executed[same]

    def watched(self, cell: CallCell, watch: Callable[[], Mapping[str, CallResults]]) -> Mapping[str, CallResults]:
        """What the system calls of the cell's workload return, found out once for all cells that run it."""
        same = _same_calls(cell)
        if same not in self._watched:
            self._watched[same] = watch()
        return self._watched[same]


def _same_calls(cell: CallCell) -> _SameCalls:
    # A task without arguments has its benchmark's: gtodbench and syscall call gettimeofday with others.
    return cell.benchmark, replace(cell.task, probe="", point=None, hits=1, refusal=None), cell.repeats
