# SPDX-License-Identifier: GPL-2.0-only
"""Budgets: how much a cell may cost, or how much more than before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.catalog.spelling import choices_sentence
from orchestrator.results.cell_filter import CellFilter, FilterError, names_of
from orchestrator.results.contract import CellRecord

KEY = "budgets"
"""The key of an experiment that has them."""

_FIGURES = ("value", "overhead")
_MOST = 1000
_ALLOWANCE = re.compile(r"(?P<sign>\+|<= ?|)(?P<amount>[0-9]{1,12}(?:\.[0-9]{1,3})?) ?(?P<percent>%?)")
_EXPECTED = "expected +N or +N% for so much more than before, or <=N for at most N, such as +5, +2.5% or <=300"


@dataclass(frozen=True)
class Allowance:
    """How much more a figure may be than before: ``amount`` in its unit, or in percent of it."""

    amount: float
    percent: bool

    def of(self, before: float) -> float:
        """The allowed increase in the figure's unit; nothing of percent of a figure that is not positive."""
        return max(0.0, before) * self.amount / 100 if self.percent else self.amount

    def __str__(self) -> str:
        return f"+{self.amount:.15g}{'%' if self.percent else ''}"


@dataclass(frozen=True)
class Limit:
    """What a figure may be at most, in its unit, whatever it was before."""

    amount: float

    def of(self, before: float) -> float:
        """The allowed increase in the figure's unit; negative for a figure that was above the limit."""
        return self.amount - before

    def __str__(self) -> str:
        return f"<={self.amount:.15g}"


@dataclass(frozen=True)
class Budget:
    """What a cell's value and its overhead may be, or grow by; None for a figure that may be anything."""

    value: Allowance | Limit | None = None
    overhead: Allowance | Limit | None = None


class BudgetError(ValueError):
    """What is wrong with budgets: a sentence for each place, which is the path of a key below ``budgets``."""

    def __init__(self, problems: Sequence[tuple[tuple[str, ...], str]]) -> None:
        super().__init__("; ".join(sentence for _, sentence in problems))
        self.problems = problems


@dataclass(frozen=True)
class Budgets:
    """Budgets by filters of cells; where several match a cell, the last one counts."""

    entries: Sequence[tuple[CellFilter, Budget]] = ()

    @classmethod
    def of(cls, data: object) -> Budgets:
        """Read what an experiment has: ``{FILTER: +N}``, or ``{FILTER: {value: <=N, overhead: +N%}}``.

        Raises BudgetError, which lists all that is wrong.
        """
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
        """The budget of a stored cell; None where it has none of its own."""
        names = names_of(cell)
        return next((budget for wanted, budget in reversed(self.entries) if wanted.matches(names)), None)

    def plain(self) -> Mapping[str, Any]:
        """The budgets as an experiment has them, each in one spelling."""
        return {wanted.text: _plain(budget) for wanted, budget in self.entries}


def _budget(content: object) -> Budget:
    if not isinstance(content, dict):
        return Budget(value=_allowance(content, ()))
    wrong = [key for key in content if key not in _FIGURES]
    if wrong or not content:
        problems = [((str(key),), f"unknown key; {choices_sentence(str(key), _FIGURES)}") for key in wrong]
        raise BudgetError(problems or [((), f"found nothing; {_EXPECTED}")])
    return Budget(**{key: _allowance(one, (key,)) for key, one in content.items()})


def _allowance(content: object, path: tuple[str, ...]) -> Allowance | Limit:
    text = str(content) if isinstance(content, int | float | str) and not isinstance(content, bool) else ""
    found = _ALLOWANCE.fullmatch(text)
    if found is None:
        shown = repr(content)[:80] if text else "no number"
        raise BudgetError([(path, f"found {shown}; {_EXPECTED}")])
    amount, percent = found["amount"], found["percent"]
    if not found["sign"]:
        more = f"'+{amount}{percent}' for {amount}{' %' if percent else ''} more than before"
        most = "'<=N' for at most N in the cell's unit" if percent else f"'<={amount}' for at most {amount}"
        raise BudgetError([(path, f"found {content!r}, a limit or an increase? Write {most}, or {more}")])
    if found["sign"] == "+":
        return Allowance(float(amount), bool(percent))
    if percent:
        raise BudgetError([(path, f"found {content!r}; a limit is in the cell's unit, as <={amount}; {_EXPECTED}")])
    return Limit(float(amount))


def _plain(budget: Budget) -> str | Mapping[str, str]:
    if budget.value is not None and budget.overhead is None:
        return str(budget.value)
    both = {"value": budget.value, "overhead": budget.overhead}
    return {key: str(one) for key, one in both.items() if one is not None}
