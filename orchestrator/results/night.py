# SPDX-License-Identifier: GPL-2.0-only
"""A night: a run, beside the last good one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.results.compared_runs import ComparedRuns
from orchestrator.results.comparison import CellChange
from orchestrator.results.contract import CellRecord, all_ok
from orchestrator.results.runs import Run


def good_night(experiment: str) -> str:
    """The baseline that is an experiment's last good night."""
    return f"good-{experiment}"


@dataclass(frozen=True)
class Night:
    """What a night has measured.

    ``compared`` is its comparison with the last good night; None in the first one, and where ``doubt`` says why they
    could not be compared. ``problems`` are sentences on what failed beside the measurement: the site, the cache.
    """

    run: Run
    compared: ComparedRuns | None = None
    doubt: str = ""
    problems: Sequence[str] = field(default=())

    @property
    def experiment(self) -> str:
        """The name of what was measured."""
        return self.run.record.experiment

    @property
    def failed(self) -> Sequence[CellRecord]:
        """The cells that failed."""
        return [cell for cell in self.run.record.cells if cell.status == "failed"]

    @property
    def beyond(self) -> Sequence[CellChange]:
        """The cells beyond their budget, failed and vanished ones included."""
        return () if self.compared is None else self.compared.comparison.beyond

    @property
    def is_good(self) -> bool:
        """Whether later nights may be compared with it: every cell has an outcome, none failed or is beyond budget."""
        return all_ok(self.run.record) and not self.run.unfinished and not self.beyond and not self.doubt
