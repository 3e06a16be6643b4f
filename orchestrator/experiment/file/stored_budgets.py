# SPDX-License-Identifier: GPL-2.0-only
"""The budgets of a run, as its own experiment has them. Nothing else of the experiment is read."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.experiment.file.source import parse
from orchestrator.results.budgets import KEY, BudgetError, Budgets
from orchestrator.results.faults import storage_faults

_FILE = "experiment.yaml"
_LARGEST_FILE = 16 << 20
"""With every default written out 100 tables of three machines take 66 KB, which no experiment of a user's may have."""
_BLOCK = re.compile(rf"^{KEY}:.*\n?(?:[ \t].*\n?|\n)*", re.MULTILINE)
"""The key with all that is indented below it, as ``Experiment.resolved_yaml`` writes it."""


def stored_budgets(directory: Path) -> Budgets:
    """The budgets of the run in ``directory``; none where its experiment is not there.

    Raises ConfigError, with file and line, where somebody has damaged the file.
    """
    path = directory / _FILE
    if not path.exists():
        return Budgets()
    with storage_faults(path), path.open("rb") as file:
        text = file.read(_LARGEST_FILE).decode("utf-8", "replace")
    block = _BLOCK.search(text)
    if block is None:
        return Budgets()
    above = text.count("\n", 0, block.start())
    source = parse(block[0], lambda line: f"{path}:{above + line}")
    data = source.data.get(KEY) if isinstance(source.data, dict) else None
    try:
        return Budgets.of(data)
    except BudgetError as error:
        place, sentence = error.problems[0]
        line = above + source.lines.get((KEY, *place), 1)
        raise ConfigError(f"{'.'.join((KEY, *place))}: {sentence}", where=f"{path}:{line}") from None
