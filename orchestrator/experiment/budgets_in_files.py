# SPDX-License-Identifier: GPL-2.0-only
"""The budgets in a file of their own, in an experiment, and in a stored run."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.experiment.source import Source, parse, read_source
from orchestrator.results.budgets import KEY, BudgetError, Budgets
from orchestrator.results.faults import storage_faults

_FILE = "experiment.yaml"
_LARGEST_FILE = 16 << 20
"""A resolved experiment may be larger than MAX_BYTES: 100 tables of three machines take 66 KB."""
_BLOCK = re.compile(rf"^{KEY}:.*\n?(?:[ \t].*\n?|\n)*", re.MULTILINE)
"""The key with the lines indented below it, as ``Experiment.resolved_yaml`` writes them."""


def stored_budgets(directory: Path) -> Budgets:
    """The budgets of the run in ``directory``, if any. Raises ConfigError for a damaged file."""
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
    return _budgets_in(source, (KEY,), lambda line: f"{path}:{above + line}")


def read_budgets(path: Path) -> Budgets:
    """The budgets of a file that has nothing else, or of an experiment. Raises ConfigError with their place in it."""
    source = read_source(path)
    inside = (KEY,) if isinstance(source.data, dict) and KEY in source.data else ()
    return _budgets_in(source, inside, lambda line: f"{path}:{line}")


def _budgets_in(source: Source, inside: tuple[str, ...], place: Callable[[int], str]) -> Budgets:
    data = source.data
    for key in inside:
        data = data.get(key) if isinstance(data, dict) else None
    try:
        return Budgets.of(data)
    except BudgetError as error:
        path, sentence = error.problems[0]
        keys = (*inside, *path)
        what = ": ".join(part for part in (".".join(keys), sentence) if part)
        raise ConfigError(what, where=place(source.lines.get(keys, 1))) from None
