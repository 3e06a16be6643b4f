# SPDX-License-Identifier: GPL-2.0-only
"""Where a table's values come from, for what is found wrong with them after the file was loaded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.errors import ConfigError
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.problems import Problem, config_error
from orchestrator.experiment.file.table_source import TableSource


@dataclass(frozen=True)
class TableOrigin:
    """A table's file, the places of its values in there, and the overrides."""

    file: str
    origins: Origins
    source: TableSource

    def placed(self, problem: Problem) -> Problem:
        """A problem of a key of the table, as one of the file's."""
        return Problem(self.source.place(problem.path), problem.sentence)


def error_of_tables(problems: Sequence[tuple[TableOrigin | None, Problem]]) -> ConfigError:
    """The one error that lists problems of an experiment's tables, each once, with its place where that is known."""
    origin = next((origin for origin, _ in problems if origin is not None), None)
    placed = [problem if one is None else one.placed(problem) for one, problem in problems]
    file, origins = (origin.file, origin.origins) if origin is not None else ("", Origins({}))
    return config_error(list(dict.fromkeys(placed)), origins, file)
