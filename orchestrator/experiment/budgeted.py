# SPDX-License-Identifier: GPL-2.0-only
"""Whether an experiment's budgets are for cells that it has."""

from __future__ import annotations

from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.problems import Problem, config_error
from orchestrator.experiment.plan import Plan
from orchestrator.experiment.selection import names_of, nearest_names
from orchestrator.results.budgets import KEY
from orchestrator.results.cell_filter import CellFilter


def check_budgets(experiment: Experiment, plan: Plan) -> None:
    """Raise ConfigError for budgets that are for none of the plan's cells: a misspelt one would hold everything."""
    names = [names_of(cell) for cell in plan.cells]
    problems = [
        Problem((KEY, wanted.text), _no_match(wanted, plan))
        for wanted, _ in experiment.budgets.entries
        if not any(wanted.matches(one) for one in names)
    ]
    if problems:
        origin = next((table.origin for table in experiment.tables if table.origin is not None), None)
        file, origins = (origin.file, origin.origins) if origin is not None else ("", Origins({}))
        raise config_error(problems, origins, file)


def _no_match(wanted: CellFilter, plan: Plan) -> str:
    guesses = [f"'{guess}'" for guess in nearest_names(wanted.terms, plan.cells)]
    return f"no cell matches; did you mean {' and '.join(guesses)}?" if guesses else "no cell matches"
