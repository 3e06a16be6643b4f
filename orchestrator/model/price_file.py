# SPDX-License-Identifier: GPL-2.0-only
"""Price lists: their files, the sources of their prices, and the time for counts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isclose
from pathlib import Path

import yaml
from pydantic import ValidationError

from orchestrator.catalog.cpus import cpu_caches
from orchestrator.catalog.data import CatalogEntry, choices_sentence, unknown
from orchestrator.catalog.price_list import Constant, Declaration, Fitted, PriceList, priced_cpus
from orchestrator.catalog.published_tables import reference_table, reference_tables
from orchestrator.errors import ConfigError, HostError, UsageError
from orchestrator.experiment.problems import DataOrigins, Problem, config_error, problems_of, shown
from orchestrator.experiment.source import KeyPath, read_source
from orchestrator.files import write_whole
from orchestrator.model.modelled_time import cycles_of, modelled_time
from orchestrator.paths import user_path
from orchestrator.results.modelled import CpuPrices, Price


def write_price_list(path: Path, text: str, *, replace: bool = False) -> None:
    """Write a file atomically. Raises UsageError for an existing file unless ``replace``, HostError."""
    if not replace and (path.exists() or path.is_symlink()):
        hint = "name another file, or add --force to replace this one"
        raise UsageError("this file exists", where=str(path), hint=hint)
    try:
        write_whole(path, text)
    except OSError as error:
        hint = "name a file in your own folder: --out my/cpu.yaml"
        raise HostError(f"cannot write the price list: {error.strerror}", where=str(path), hint=hint) from None


_KEPT = 1e-6
"""The relative tolerance of a sum: figures have nine significant digits."""


def contradiction(prices: PriceList, fitted: Fitted) -> str | None:
    """The first fitted price or cell that does not follow from the price list, by its name; None if all do.

    A price is the weighted sum of the published figures less the constant prices, and a cell's modelled time is the sum
    of its counts times their prices. A single edited figure breaks one of the two. This check needs no numpy.
    """
    nanosecond = prices.mhz.value / 1000
    rests = []
    for cell in fitted.cells:
        known = [
            number * prices.constants[name].value for name, number in cell.counts.items() if name in prices.constants
        ]
        rests.append(cell.published - fsum(known) / nanosecond)
    for name, price in fitted.costs.items():
        if not _is_sum(
            price.cycles, [weight * rest * nanosecond for weight, rest in zip(price.weights, rests, strict=True)]
        ):
            return name
    for cell in fitted.cells:
        if not _is_sum(
            cell.modelled, [number * cycles_of(prices, name) / nanosecond for name, number in cell.counts.items()]
        ):
            return f"{cell.table} {cell.column}"
    return None


def _is_sum(value: float, terms: list[float]) -> bool:
    return abs(value - fsum(terms)) <= _KEPT * fsum(map(abs, terms))


_FITTED = "fitted"
_PARTS: Mapping[str, type[CatalogEntry]] = {
    "mhz": Constant,
    "constants": Constant,
    "declared": Declaration,
    _FITTED: Fitted,
}
"""The models of nested keys."""


@dataclass(frozen=True)
class PriceFile:
    """A price list and its file: the whole ``text``, and the part above ``fitted``, ``declared``."""

    path: Path
    prices: PriceList
    text: str
    declared: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def declaration(self) -> str:
        return hashlib.sha256(self.declared.encode()).hexdigest()

    @property
    def unusable(self) -> str | None:
        """Why the table gives no times, or None."""
        if self.prices.uncalibrated is not None:
            return self.prices.uncalibrated
        if self.prices.fitted is None:
            return f"the price list of {self.prices.cpu} is not fitted yet"
        if self.prices.fitted.declaration != self.declaration:
            return f"the price list of {self.prices.cpu} has changed since it was fitted"
        assert self.prices.declared is not None
        cells = self.prices.fitted.cells
        if [(cell.table, cell.column) for cell in cells] != list(self.prices.declared.cells) or not all(
            isclose(cell.published, reference_table(cell.table).nanoseconds(cell.column), rel_tol=1e-8)
            for cell in cells
        ):
            return f"the price list of {self.prices.cpu} was fitted to figures that differ from the published ones"
        edited = contradiction(self.prices, self.prices.fitted)
        if edited is not None:
            what = f"{edited} does not follow from the rest"
            return f"the price list of {self.prices.cpu} was edited below 'fitted': {what}"
        return None

    def text_with(self, fitted: Fitted) -> str:
        """The file with a new ``fitted``, and an unchanged part above."""
        part = yaml.safe_dump(
            {_FITTED: fitted.model_dump(mode="json")}, sort_keys=False, width=120, default_flow_style=None
        )
        return f"{self.declared}{part}"


def price_file(name: str) -> PriceFile:
    """The price list of a CPU, or at a path: a name with a slash, or of a YAML file.

    Raises ConfigError, with file and line.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        return load_price_file(user_path(name))
    known = priced_cpus()
    if name not in known:
        raise UsageError(unknown("price list", name, known), hint="name your own table by its path: ./my.yaml")
    return load_price_file(known[name])


def load_price_file(path: Path) -> PriceFile:
    """Read a price list. Raises ConfigError, which lists all problems: file, line, key, what was found."""
    source = read_source(path)
    origins = DataOrigins({key: f"{path}:{line}" for key, line in source.lines.items()})
    if not isinstance(source.data, dict):
        what = f"found {shown(source.data)}; expected keys with values, such as cpu: pentium4"
        raise config_error([Problem((), what)], origins, str(path))
    try:
        table = PriceList.model_validate(source.data)
    except ValidationError as error:
        problems = problems_of(error, _unknown_key)
        if all(problem.path[:1] == (_FITTED,) for problem in problems):
            what = "not the output of 'model fit': leave it out, and fit again"
            problems.append(Problem((_FITTED,), what))
        raise config_error(problems, origins, str(path)) from None
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path)) from None
    lines = text.splitlines(keepends=True)
    above = source.lines.get((_FITTED,), len(lines) + 1) - 1
    declared, fitted = "".join(lines[:above]).rstrip("\n") + "\n", "".join(lines[above:])
    problems = [] if table.declared is None else _wrong_declaration(table.declared)
    if table.caches is not None and table.caches not in cpu_caches():
        what = f"found '{table.caches}'; {choices_sentence(table.caches, cpu_caches())}"
        problems.append(Problem(("caches",), what))
    if fitted and (list(source.data)[-1] != _FITTED or not fitted.startswith(f"{_FITTED}:")):
        expected = f"expected '{_FITTED}:' at the beginning of a line, and nothing declared below it"
        problems.append(Problem((_FITTED,), expected))
    if problems:
        raise config_error(problems, origins, str(path))
    return PriceFile(path, table, text, declared)


def _unknown_key(path: KeyPath) -> str:
    part = next((model for key, model in _PARTS.items() if len(path) > 1 and path[0] == key), PriceList)
    return f"unknown key; {choices_sentence(str(path[-1]), part.model_fields)}"


def _wrong_declaration(declared: Declaration) -> list[Problem]:
    """Report unknown published cells, else calibration tables without a kernel and kernels without a table."""
    places: list[tuple[KeyPath, str, Sequence[str]]] = [
        *((("declared", "calibration", name), name, columns) for name, columns in declared.calibration.items()),
        *((("declared", "validation", name), name, columns) for name, columns in declared.validation.items()),
        *(
            (("declared", "exclusions", at), exclusion.table, exclusion.columns)
            for at, exclusion in enumerate(declared.exclusions)
        ),
    ]
    problems = []
    for path, name, columns in places:
        published = reference_tables().get(name)
        known = reference_tables() if published is None else published.columns
        wrong = name if published is None else next((column for column in columns if column not in known), None)
        if wrong is not None:
            problems.append(Problem(path, f"found '{wrong}'; {choices_sentence(wrong, known)}"))
    key, calibration, kernels = ("declared", "kernels"), declared.calibration, declared.kernels
    missing = [
        f"expected the kernel of the counts for {name}, which 'calibration' has"
        for name in calibration.keys() - kernels.keys()
    ]
    other_problems = [
        Problem((*key, name), "this table is not in 'calibration'") for name in kernels.keys() - calibration.keys()
    ]
    return problems or [*(Problem(key, what) for what in missing), *other_problems]


MHZ = "MHz"


def price_sources(file: PriceFile) -> CpuPrices:
    """The prices of a table in cycles, its frequency and its caches; an unusable table has no fitted prices."""
    table, declared = file.prices, file.prices.declared
    prices = []
    if file.unusable is None:
        assert table.fitted is not None
        assert declared is not None
        of = declared.calibration.items()
        where = "; ".join(f"{name} {', '.join(columns)}, counts of {declared.kernels[name]}" for name, columns in of)
        for name, price in table.fitted.costs.items():
            time = modelled_time(table, {name: 1.0})
            low, high = (end * table.mhz.value / 1000 for end in (time.low, time.high))
            prices.append(Price(name=name, value=price.cycles, low=low, high=high, source="fitted", where=where))
    constants: list[tuple[str, Constant]] = [*table.constants.items(), (MHZ, table.mhz)]
    for key, constant in constants:
        prices.append(
            Price(
                name=key,
                value=constant.value,
                low=constant.low,
                high=constant.high,
                source=constant.source,
                where=constant.where,
            )
        )
    return CpuPrices(
        cpu=table.cpu,
        sha256=file.digest,
        declared=None if declared is None else declared.date,
        reason=file.unusable,
        costs=tuple(prices),
        remarks=() if declared is None else tuple(declared.remarks),
        caches=None if table.caches is None else cpu_caches()[table.caches],
    )
