# SPDX-License-Identifier: GPL-2.0-only
"""The files of cost tables: the catalogue's, and a user's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import isclose
from pathlib import Path

import yaml
from pydantic import ValidationError

from orchestrator.catalog.cost_table import Constant, CostTable, Declaration, Fitted
from orchestrator.catalog.cpu_caches import cpu_caches
from orchestrator.catalog.data import Fact
from orchestrator.catalog.reference import reference_tables
from orchestrator.catalog.spelling import choices_sentence, unknown
from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.problems import Problem, config_error, problems_of, shown
from orchestrator.experiment.file.source import KeyPath, read_source
from orchestrator.model.consistency import contradiction
from orchestrator.model.price import published_nanoseconds
from orchestrator.paths import user_path

_FOLDER = "costs"
_SUFFIX = ".yaml"
_FITTED = "fitted"
_PARTS: Mapping[str, type[Fact]] = {"mhz": Constant, "constants": Constant, "declared": Declaration, _FITTED: Fitted}
"""What has keys of its own, by the key that it is below."""


@dataclass(frozen=True)
class CostFile:
    """A cost table and its file: the ``text`` of all of it, and of what was ``declared``: all above ``fitted``."""

    path: Path
    table: CostTable
    text: str
    declared: str

    @property
    def digest(self) -> str:
        """The SHA-256 of all of it."""
        return _digest(self.text)

    @property
    def declaration(self) -> str:
        """The SHA-256 of what was declared."""
        return _digest(self.declared)

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
        edited = contradiction(self.table, self.table.fitted)
        if edited is not None:
            return (
                f"the cost table of {self.table.cpu} was edited below 'fitted': {edited} does not follow from the rest"
            )
        return None

    def text_with(self, fitted: Fitted) -> str:
        """The file with ``fitted`` in place of what was fitted, and all above it as it is."""
        part = yaml.safe_dump(
            {_FITTED: fitted.model_dump(mode="json")}, sort_keys=False, width=120, default_flow_style=None
        )
        return f"{self.declared}{part}"


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
    """The cost table of a CPU, or of a path: with a slash in it, or to a YAML file.

    Raises ConfigError, with file and line.
    """
    if "/" in name or name.endswith((_SUFFIX, ".yml")):
        return load_cost_file(user_path(name))
    known = {path.stem: path for path in cost_files()}
    if name not in known:
        raise UsageError(unknown("cost table", name, known), hint="a table of your own is named by its path: ./my.yaml")
    return load_cost_file(known[name])


def load_cost_file(path: Path) -> CostFile:
    """Read a cost table. Raises ConfigError, which lists all that is wrong: file, line, key, what was found."""
    source = read_source(path)
    origins = Origins({key: f"{path}:{line}" for key, line in source.lines.items()})
    if not isinstance(source.data, dict):
        what = f"found {shown(source.data)}; expected keys with values, such as cpu: pentium4"
        raise config_error([Problem((), what)], origins, str(path))
    try:
        table = CostTable.model_validate(source.data)
    except ValidationError as error:
        problems = problems_of(error, _unknown_key)
        if all(problem.path[:1] == (_FITTED,) for problem in problems):
            what = "not what 'model fit' writes: leave it out, and fit again"
            problems.append(Problem((_FITTED,), what))
        raise config_error(problems, origins, str(path)) from None
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    declared, found = _parts(text, source.lines.get((_FITTED,)))
    problems = [*(_unknown_cells(table) or list(_wrong_kernels(table))), *_unknown_caches(table)]
    if found and (list(source.data)[-1] != _FITTED or not found.startswith(f"{_FITTED}:")):
        expected = f"expected '{_FITTED}:' at the beginning of a line, and nothing declared below it"
        problems.append(Problem((_FITTED,), expected))
    if problems:
        raise config_error(problems, origins, str(path))
    return CostFile(path, table, text, declared)


def _parts(text: str, line: int | None) -> tuple[str, str]:
    """What is above a line, and what begins with it; all and nothing without one."""
    lines = text.splitlines(keepends=True)
    above = len(lines) if line is None else line - 1
    return "".join(lines[:above]).rstrip("\n") + "\n", "".join(lines[above:])


def _wrong_kernels(table: CostTable) -> Iterator[Problem]:
    """Tables that are calibrated on without a kernel, and the other way round."""
    if table.declared is None:
        return
    key, calibration, kernels = ("declared", "kernels"), table.declared.calibration, table.declared.kernels
    for name in calibration.keys() - kernels.keys():
        yield Problem(key, f"expected the kernel of the counts for {name}, which 'calibration' has")
    for name in kernels.keys() - calibration.keys():
        yield Problem((*key, name), "not a table that 'calibration' has")


def _unknown_caches(table: CostTable) -> Sequence[Problem]:
    known = cpu_caches()
    if table.caches is None or table.caches in known:
        return []
    return [Problem(("caches",), f"found '{table.caches}'; {choices_sentence(table.caches, known)}")]


def _unknown_key(path: KeyPath) -> str:
    part = next((model for key, model in _PARTS.items() if len(path) > 1 and path[0] == key), CostTable)
    return f"unknown key; {choices_sentence(str(path[-1]), part.model_fields)}"


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
