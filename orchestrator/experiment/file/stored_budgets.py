# SPDX-License-Identifier: GPL-2.0-only
"""The budgets of a run, as its own experiment has them. Nothing else of the experiment is read."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.experiment.file.source import read_source
from orchestrator.results.budgets import KEY, BudgetError, Budgets


def stored_budgets(directory: Path) -> Budgets:
    """The budgets of the run in ``directory``; none where its experiment is not there.

    Raises ConfigError, with file and line, where somebody has damaged the file.
    """
    path = directory / "experiment.yaml"
    if not path.exists():
        return Budgets()
    source = read_source(path)
    data = source.data.get(KEY) if isinstance(source.data, dict) else None
    try:
        return Budgets() if data is None else Budgets.of(data)
    except BudgetError as error:
        place, sentence = error.problems[0]
        line = source.lines.get((KEY, *place), 1)
        raise ConfigError(f"{'.'.join((KEY, *place))}: {sentence}", where=f"{path}:{line}") from None
