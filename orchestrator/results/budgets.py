# SPDX-License-Identifier: GPL-2.0-only
"""Budgets of cells, and the filters that select cells by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

from orchestrator.catalog.data import choices_sentence, nearest, unknown
from orchestrator.errors import UsageError
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.exact import decimal_text, exact
from orchestrator.results.parameters import AT

KEYS = ("table", "cpu", "kernel", "point", "probe", "handler", "benchmark", "id")

_ABOUT_COMMAS = (
    "a cell must match all conditions separated by commas; to select more cells repeat the option: "
    "--only A --only B; write '?' for a comma in a name"
)

NameOf = Callable[[str], str]
"""A cell's value for each of ``KEYS``, or an empty text."""


class FilterError(ValueError):
    """An invalid filter; ``example`` is a valid one, ``hint`` one for ``--only``."""

    def __init__(self, what: str, *, example: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.example = example
        self.hint = hint or (f"for example --only {example}" if example else "")


@dataclass(frozen=True)
class CellFilter:
    """Terms that must all match: ``probe=djprobe,cpu=pentium4``; a bare pattern may match any key.

    A term is a sequence of keys, one of which must match, and a pattern of file names (``*``, ``?``, ``[...]``).
    """

    text: str
    terms: Sequence[tuple[Sequence[str], str]]

    @classmethod
    def of(cls, text: str) -> CellFilter:
        """Parse a filter. Raises FilterError."""
        terms: list[tuple[Sequence[str], str]] = []
        for part in text.split(","):
            key, equals, pattern = (piece.strip() for piece in part.partition("="))
            if not equals:
                key, pattern = "", key
            if not pattern:
                raise FilterError("expected PATTERN or KEY=PATTERN", example="probe=djprobe,cpu=pentium4")
            if equals and "+" in key:  # a kernel with a parameter of its own
                key, equals, pattern = "", "", part.strip()
            if equals and key not in KEYS:
                raise FilterError(unknown("key", key, KEYS), hint=_ABOUT_COMMAS if "," in text else "")
            terms.append(((key,) if equals else KEYS, pattern))
        return cls(text, terms)

    @property
    def remark(self) -> str:
        """The hint for a filter of several terms that matches nothing."""
        return _ABOUT_COMMAS if len(self.terms) > 1 else ""

    def matches(self, name_of: NameOf) -> bool:
        return all(any(fnmatchcase(name_of(key), pattern) for key in keys) for keys, pattern in self.terms)


def names_of(cell: CellRecord) -> NameOf:
    """A stored cell's values for the keys of filters."""
    values = {key: str(getattr(cell, key) or "") for key in KEYS if key != "point"}
    return {**values, "point": AT.of(cell) or ""}.__getitem__


def only(cells: Iterable[CellRecord]) -> list[str]:
    """Options of ``run`` that select exactly these cells; ``?`` stands for a comma, which would split the filter."""
    return [word for cell in cells for word in ("--only", f"id={cell.id.replace(',', '?')}")]


KEY = "budgets"
"""The key in an experiment."""

_FIGURES = ("value", "overhead")
_MOST = 1000
_AMOUNT = r"[0-9]{1,15}(?:\.[0-9]{1,20})?"
_ALLOWANCE = re.compile(rf"(?P<sign>\+|<= ?|)(?P<amount>{_AMOUNT}) ?(?P<percent>%?)")
_EXPECTED = "expected +N or +N% to allow such an increase, or <=N to allow at most N, such as +5, +2.5% or <=300"


@dataclass(frozen=True)
class Allowance:
    """The allowed increase of a figure: ``amount`` in its unit or in percent."""

    amount: Fraction | int
    percent: bool

    def of(self, before: float) -> Fraction | int:
        """The allowed increase in the figure's unit; in percent of a figure that is not positive, 0."""
        return max(Fraction(0), exact(before)) * self.amount / 100 if self.percent else self.amount

    def __str__(self) -> str:
        return f"+{decimal_text(self.amount)}{'%' if self.percent else ''}"


@dataclass(frozen=True)
class Limit:
    """The largest allowed figure, in its unit."""

    amount: Fraction | int

    def of(self, before: float) -> Fraction:
        """The allowed increase in the figure's unit; negative if it was above the limit."""
        return self.amount - exact(before)

    def __str__(self) -> str:
        return f"<={decimal_text(self.amount)}"


@dataclass(frozen=True)
class Budget:
    """Limits of a cell's value and overhead; None is no limit."""

    value: Allowance | Limit | None = None
    overhead: Allowance | Limit | None = None


class BudgetError(ValueError):
    """Invalid budgets: ``problems`` has a sentence for each path of keys below ``budgets``."""

    def __init__(self, problems: Sequence[tuple[tuple[str, ...], str]]) -> None:
        super().__init__("; ".join(sentence for _, sentence in problems))
        self.problems = problems


@dataclass(frozen=True)
class Budgets:
    """Budgets by filters of cells; of several that match a cell, the last one counts."""

    entries: Sequence[tuple[CellFilter, Budget]] = ()

    @classmethod
    def of(cls, data: object) -> Budgets:
        """Parse ``{FILTER: +N}`` or ``{FILTER: {value: <=N, overhead: +N%}}``. Raises BudgetError with all problems."""
        if not isinstance(data, dict) or len(data) > _MOST:
            expected = f"expected a mapping of at most {_MOST} filters of cells to budgets, such as {{kprobe: +5}}"
            raise BudgetError([((), expected)])
        problems: list[tuple[tuple[str, ...], str]] = []
        entries = []
        for text, content in data.items():
            try:
                entries.append((CellFilter.of(str(text)), _budget(content)))
            except FilterError as error:
                example = f", such as {error.example}" if error.example else ""
                problems.append(((str(text),), f"{error}{example}"))
            except BudgetError as error:
                problems += [((str(text), *path), sentence) for path, sentence in error.problems]
        if problems:
            raise BudgetError(problems)
        return cls(entries)

    def of_cell(self, cell: CellRecord) -> Budget | None:
        names = names_of(cell)
        return next((budget for cell_filter, budget in reversed(self.entries) if cell_filter.matches(names)), None)

    def plain(self) -> Mapping[str, Any]:
        """The budgets as in an experiment, in canonical spelling."""
        return {cell_filter.text: _plain(budget) for cell_filter, budget in self.entries}


def _budget(content: object) -> Budget:
    if not isinstance(content, dict):
        return Budget(value=_allowance(content, ()))
    wrong = [key for key in content if key not in _FIGURES]
    if wrong or not content:
        problems = [((str(key),), f"unknown key; {choices_sentence(str(key), _FIGURES)}") for key in wrong]
        raise BudgetError(problems or [((), f"found nothing; {_EXPECTED}")])
    return Budget(**{key: _allowance(text, (key,)) for key, text in content.items()})


def _allowance(content: object, path: tuple[str, ...]) -> Allowance | Limit:
    text = str(content) if isinstance(content, int | float | str) and not isinstance(content, bool) else ""
    match = _ALLOWANCE.fullmatch(text)
    if match is None:
        shown = repr(content)[:80] if text else "no number"
        raise BudgetError([(path, f"found {shown}; {_EXPECTED}")])
    amount, percent = match["amount"], match["percent"]
    if not match["sign"]:
        more = f"'+{amount}{percent}' to allow an increase of {amount}{' %' if percent else ''}"
        most = "'<=N' to allow at most N in the cell's unit" if percent else f"'<={amount}' to allow at most {amount}"
        raise BudgetError([(path, f"found {content!r}; write {most}, or {more}")])
    if match["sign"] == "+":
        return Allowance(Fraction(amount), bool(percent))
    if percent:
        raise BudgetError([(path, f"found {content!r}; a limit is in the cell's unit: <={amount}; {_EXPECTED}")])
    return Limit(Fraction(amount))


def _plain(budget: Budget) -> str | Mapping[str, str]:
    if budget.value is not None and budget.overhead is None:
        return str(budget.value)
    both = {"value": budget.value, "overhead": budget.overhead}
    return {key: str(allowance) for key, allowance in both.items() if allowance is not None}


_SHOWN = 20
_HINT = "CELL is a cell's id, parts of it such as kprobe, or a pattern: 'bpf-*'"
_IS_FILTER = re.compile(r"[*?=\[,]")


def cells_named(run: RunRecord, name: str) -> Sequence[CellRecord]:
    """The cell with this id, the cells whose ids have all of its parts, or those that a filter matches.

    Raises UsageError if there is none.
    """
    ids = [cell.id for cell in run.cells]
    if _IS_FILTER.search(name) and not _with_parts(ids, name):
        try:
            cell_filter = CellFilter.of(name)
        except FilterError as error:
            raise UsageError(str(error), where=f"cell {name!r}", hint=error.hint) from None
        if chosen := [cell for cell in run.cells if cell_filter.matches(names_of(cell))]:
            return chosen
    chosen_ids = set(ids_named(ids, name, f"run {run.run}"))
    return [cell for cell in run.cells if cell.id in chosen_ids]


def ids_named(ids: Sequence[str], name: str, where: str) -> Sequence[str]:
    """The id ``name``, or the ids with all of its parts, which may be patterns.

    Raises UsageError if there is none; ``where`` names the owner of the ids.
    """
    matches = _with_parts(ids, name)
    if not matches:
        guess = nearest(name, list(dict.fromkeys(part for id_ in ids for part in id_.split("/"))))
        hint = f"did you mean '{guess}'?" if guess else _HINT
        raise UsageError(f"{where} has no cell '{name}'", detail=["cells:", *ids[:_SHOWN]], hint=hint)
    return matches


def _with_parts(ids: Sequence[str], name: str) -> Sequence[str]:
    if name in ids:
        return [name]
    patterns = name.split("/")
    parts = {id_: id_.split("/") for id_ in ids}
    return [id_ for id_ in ids if all(any(fnmatchcase(part, pattern) for part in parts[id_]) for pattern in patterns)]
