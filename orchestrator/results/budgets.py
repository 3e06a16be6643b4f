# SPDX-License-Identifier: GPL-2.0-only
"""Budgets: the most that a figure of a cell, or a count of a test, may be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from orchestrator.catalog.data import choices_sentence
from orchestrator.results.cell_filters import CellFilter, FilterError, names_of
from orchestrator.results.contract import CellRecord
from orchestrator.results.exact import decimal_text, exact

KEY = "budgets"
"""The key in an experiment."""

_FIGURES = ("value", "overhead")
_MOST = 1000
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,20})?"
_BUDGET = re.compile(
    rf"<= ?(?P<limit>{_NUMBER})|(?:(?P<counted>{_NUMBER}) )?\+(?P<more>{_NUMBER}) ?(?P<percent>%?)|(?P<alone>{_NUMBER})"
)
_PERCENT = re.compile(rf"(?P<sign>(?:<= ?)?)(?P<amount>{_NUMBER}) ?%")
GRAMMAR = (
    "expected +N or +N% to allow such an increase, <=N to allow at most N, or N +N% to allow an increase of a counted "
    "N, such as +5, +2.5%, <=300 or 422 +2%"
)


class BudgetError(ValueError):
    """Invalid budgets: ``problems`` has a sentence for each path of keys below ``budgets``."""

    def __init__(self, problems: Sequence[tuple[tuple[str, ...], str]]) -> None:
        super().__init__("; ".join(sentence for _, sentence in problems))
        self.problems = problems


@dataclass(frozen=True)
class Budget:
    """The most that a figure may be: ``+5``, ``+2%``, ``<=300``, ``422``, ``422 +2%`` (docs/experiments.md).

    ``more`` is the allowed increase, in the figure's unit or in ``percent``: of the ``counted`` figure, or without one
    of the figure before. A ``limit`` stands alone.
    """

    more: Fraction | int = 0
    percent: bool = False
    counted: Fraction | int | None = None
    limit: Fraction | int | None = None

    @classmethod
    def of(cls, content: object) -> Budget:
        """Parse a budget. Raises BudgetError with a sentence that shows the grammar."""
        text = str(content) if isinstance(content, int | float | str) and not isinstance(content, bool) else ""
        match = _BUDGET.fullmatch(text)
        if match is None:
            raise BudgetError([((), _wrong(content, text))])
        if match["limit"]:
            return cls(limit=Fraction(match["limit"]))
        counted = match["counted"] or match["alone"]
        return cls(
            more=Fraction(match["more"] or 0),
            percent=bool(match["percent"]),
            counted=None if counted is None else exact(float(counted)),  # a third is written with 15 digits
        )

    @property
    def most(self) -> Fraction | int | None:
        """The largest allowed figure; None if it depends on the figure before."""
        if self.limit is not None or self.counted is None:
            return self.limit
        return self.counted + self._increase_of(self.counted)

    def increase(self, before: float) -> Fraction | int:
        """The increase that is allowed over a figure, in its unit; negative if the figure exceeds ``most``."""
        return self._increase_of(exact(before)) if self.most is None else self.most - exact(before)

    def _increase_of(self, figure: Fraction | int) -> Fraction | int:
        return max(Fraction(0), Fraction(figure)) * self.more / 100 if self.percent else self.more

    def times(self, factor: Fraction | int) -> Budget:
        """The budget of so many times the figure. A percentage stays the same."""
        return Budget(
            more=self.more if self.percent else self.more * factor,
            percent=self.percent,
            counted=None if self.counted is None else self.counted * factor,
            limit=None if self.limit is None else self.limit * factor,
        )

    def __str__(self) -> str:
        if self.limit is not None:
            return f"<={decimal_text(self.limit)}"
        more = f"+{decimal_text(self.more)}{'%' if self.percent else ''}"
        if self.counted is None:
            return more
        return f"{decimal_text(self.counted)} {more}" if self.more else decimal_text(self.counted)


def _wrong(content: object, text: str) -> str:
    percent = _PERCENT.fullmatch(text)
    if percent is None:
        return f"found {repr(content)[:80] if text else 'no number'}; {GRAMMAR}"
    amount = percent["amount"]
    if percent["sign"]:
        return f"found {content!r}; a limit is in the figure's unit: <={amount}; {GRAMMAR}"
    return f"found {content!r}; write '+{amount}%' to allow an increase of {amount} %, or '<=N' to allow at most N"


@dataclass(frozen=True)
class CellBudget:
    """Budgets of a cell's value and overhead; None is no budget."""

    value: Budget | None = None
    overhead: Budget | None = None


@dataclass(frozen=True)
class Budgets:
    """Budgets by filters of cells; of several that match a cell, the last one counts."""

    entries: Sequence[tuple[CellFilter, CellBudget]] = ()

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
                entries.append((CellFilter.of(str(text)), _cell_budget(content)))
            except FilterError as error:
                example = f", such as {error.example}" if error.example else ""
                problems.append(((str(text),), f"{error}{example}"))
            except BudgetError as error:
                problems += [((str(text), *path), sentence) for path, sentence in error.problems]
        if problems:
            raise BudgetError(problems)
        return cls(entries)

    def of_cell(self, cell: CellRecord) -> CellBudget | None:
        names = names_of(cell)
        return next((budget for cell_filter, budget in reversed(self.entries) if cell_filter.matches(names)), None)

    def plain(self) -> Mapping[str, Any]:
        """The budgets as in an experiment, in canonical spelling."""
        return {cell_filter.text: _plain(budget) for cell_filter, budget in self.entries}


def _cell_budget(content: object) -> CellBudget:
    if not isinstance(content, dict):
        return CellBudget(value=_figure_budget(content, ()))
    wrong = [key for key in content if key not in _FIGURES]
    if wrong or not content:
        problems = [((str(key),), f"unknown key; {choices_sentence(str(key), _FIGURES)}") for key in wrong]
        raise BudgetError(problems or [((), f"found nothing; {GRAMMAR}")])
    return CellBudget(**{key: _figure_budget(text, (key,)) for key, text in content.items()})


def _figure_budget(content: object, path: tuple[str, ...]) -> Budget:
    """A budget, but no number alone: in earlier versions that was an increase."""
    try:
        budget = Budget.of(content)
    except BudgetError as error:
        raise BudgetError([(path, str(error))]) from None
    if budget.counted is not None and not budget.more:
        most = decimal_text(budget.counted)
        what = f"found {content!r}; write '<={most}' to allow at most {most}"
        raise BudgetError([(path, f"{what}, or '+{most}' to allow an increase of {most}")])
    return budget


def _plain(budget: CellBudget) -> str | Mapping[str, str]:
    if budget.value is not None and budget.overhead is None:
        return str(budget.value)
    both = {"value": budget.value, "overhead": budget.overhead}
    return {key: str(figure_budget) for key, figure_budget in both.items() if figure_budget is not None}
