# SPDX-License-Identifier: GPL-2.0-only
"""The files of cost tables: the catalogue's, and a user's own."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import isclose
from pathlib import Path

import yaml
from pydantic import ValidationError

from orchestrator.catalog.cost_table import CostTable, Fitted
from orchestrator.catalog.reference import reference_tables
from orchestrator.catalog.spelling import choices_sentence
from orchestrator.errors import ConfigError, HostError, UsageError
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.problems import Problem, config_error, problems_of
from orchestrator.experiment.file.source import KeyPath, read_source
from orchestrator.model.price import published_nanoseconds
from orchestrator.paths import user_path

_FOLDER = "costs"
_SUFFIX = ".yaml"
_FITTED = "\nfitted:"


@dataclass(frozen=True)
class CostFile:
    """A cost table and its file. ``digest`` is the SHA-256 of all of it, ``declaration`` of all above ``fitted``."""

    path: Path
    table: CostTable
    digest: str
    declaration: str

    @property
    def unusable(self) -> str | None:
        """Why it gives no times; None where it does."""
        if self.table.uncalibrated is not None:
            return self.table.uncalibrated
        if self.table.fitted is None:
            return f"the cost table of {self.table.cpu} was not fitted yet"
        if self.table.fitted.declaration != self.declaration:
            return f"the cost table of {self.table.cpu} has changed since it was fitted"
        if not _is_fitted_to_what_was_published(self.table):
            return f"the cost table of {self.table.cpu} was fitted to other figures than those that were published"
        return None

    def write(self, fitted: Fitted) -> None:
        """Replace what was fitted, and nothing else. Raises HostError where the file cannot be written."""
        found = {"fitted": fitted.model_dump(mode="json")}
        part = yaml.safe_dump(found, sort_keys=False, width=120, default_flow_style=None)
        unfinished = self.path.with_name(f".{self.path.name}.new")
        try:
            declared = self.path.read_text(encoding="utf-8").partition(_FITTED)[0].rstrip("\n")
            unfinished.write_text(f"{declared}\n{part}", encoding="utf-8")
            unfinished.replace(self.path)
        except OSError as error:
            hint = "copy the cost table to a folder of yours, and name it by its path"
            why = f"the cost table cannot be written: {error.strerror}"
            raise HostError(why, where=str(self.path), hint=hint) from None


def _is_fitted_to_what_was_published(table: CostTable) -> bool:
    assert table.fitted is not None
    assert table.declared is not None
    cells = table.fitted.cells
    if [(one.table, one.column) for one in cells] != list(table.declared.cells):
        return False
    return all(isclose(one.published, published_nanoseconds(one.table, one.column), rel_tol=1e-8) for one in cells)


def cost_files() -> Sequence[Path]:
    """The catalogue's cost tables, by CPU."""
    folder = Path(str(files("orchestrator.catalog") / _FOLDER))
    return sorted(folder.glob(f"*{_SUFFIX}"))


def cost_file(name: str) -> CostFile:
    """The cost table of a CPU, or of a path (with a slash in it). Raises ConfigError, with file and line."""
    if "/" in name:
        return load_cost_file(user_path(name))
    known = {path.stem: path for path in cost_files()}
    if name not in known:
        raise UsageError(f"found '{name}'; {choices_sentence(name, known)}; or a path to a cost table of your own")
    return load_cost_file(known[name])


def load_cost_file(path: Path) -> CostFile:
    """Read a cost table. Raises ConfigError, which lists all that is wrong: file, line, key, what was found."""
    source = read_source(path)
    origins = Origins({key: f"{path}:{line}" for key, line in source.lines.items()})
    if not isinstance(source.data, dict):
        raise config_error([Problem((), "expected a mapping")], origins, str(path))
    try:
        table = CostTable.model_validate(source.data)
    except ValidationError as error:
        raise config_error(problems_of(error, _unknown), origins, str(path)) from None
    problems = list(_unknown_cells(table))
    if problems:
        raise config_error(problems, origins, str(path))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    declared = text.partition(_FITTED)[0].rstrip("\n") + "\n"
    return CostFile(path, table, _digest(text), _digest(declared))


def _unknown(path: KeyPath) -> str:
    return f"unknown key '{path[-1]}'"


def _unknown_cells(table: CostTable) -> Sequence[Problem]:
    """Cells that no published table has."""
    if table.declared is None:
        return []
    declared = table.declared
    places: list[tuple[KeyPath, str, Sequence[str]]] = [
        *((("declared", "calibration", name), name, columns) for name, columns in declared.calibration.items()),
        *((("declared", "validation", name), name, columns) for name, columns in declared.validation.items()),
        *((("declared", "exclusions", at), one.table, one.columns) for at, one in enumerate(declared.exclusions)),
    ]
    problems = []
    for path, name, columns in places:
        published = reference_tables().get(name)
        if published is None:
            problems.append(Problem(path, f"found '{name}'; {choices_sentence(name, reference_tables())}"))
            continue
        wrong = next((column for column in columns if column not in published.columns), None)
        if wrong is not None:
            problems.append(Problem(path, f"found '{wrong}'; {choices_sentence(wrong, published.columns)}"))
    return problems


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
