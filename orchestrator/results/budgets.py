# SPDX-License-Identifier: GPL-2.0-only
"""Budgets, how much a cell may cost, and the filters that select cells by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from orchestrator.catalog.data import choices_sentence, nearest, unknown
from orchestrator.errors import UsageError
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.parameters import AT

KEYS = ("table", "cpu", "kernel", "point", "probe", "handler", "benchmark", "id")

_OF_COMMAS = (
    "conditions with a comma between them must all hold; to select more cells repeat the option: "
    "--only A --only B; '?' stands for a comma in a name"
)

NameOf = Callable[[str], str]
"""A cell's name by each of ``KEYS``; empty where it has none."""


class FilterError(ValueError):
    """The text is no filter; the message says why, ``example`` is one. ``hint`` is what to do with ``--only``."""

    def __init__(self, what: str, *, example: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.example = example
        self.hint = hint or (f"for example --only {example}" if example else "")


@dataclass(frozen=True)
class CellFilter:
    """Terms that must all hold: ``probe=djprobe,cpu=pentium4``; a bare pattern is for any key.

    A term is a pattern of file names (``*``, ``?``, ``[...]``), behind the keys of which any may match it.
    """

    text: str
    terms: Sequence[tuple[Sequence[str], str]]

    @classmethod
    def of(cls, text: str) -> CellFilter:
        """Read a filter. Raises FilterError."""
        terms: list[tuple[Sequence[str], str]] = []
        for part in text.split(","):
            key, equals, pattern = (piece.strip() for piece in part.partition("="))
            if not equals:
                key, pattern = "", key
            if not pattern:
                raise FilterError("expected PATTERN or KEY=PATTERN", example="probe=djprobe,cpu=pentium4")
            if equals and key not in KEYS:
                raise FilterError(unknown("key", key, KEYS), hint=_OF_COMMAS if "," in text else "")
            terms.append(((key,) if equals else KEYS, pattern))
        return cls(text, terms)

    @property
    def remark(self) -> str:
        """What to say of a filter that matches nothing; empty where it is one pattern."""
        return _OF_COMMAS if len(self.terms) > 1 else ""

    def matches(self, name_of: NameOf) -> bool:
        return all(any(fnmatchcase(name_of(key), pattern) for key in keys) for keys, pattern in self.terms)


def names_of(cell: CellRecord) -> NameOf:
    """The names of a stored cell."""
    own = {key: str(getattr(cell, key) or "") for key in KEYS if key != "point"}
    return {**own, "point": AT.of(cell) or ""}.__getitem__


def only(cells: Iterable[CellRecord]) -> list[str]:
    """Options of ``run`` that select exactly these cells; a comma in an id would part the filter."""
    return [word for cell in cells for word in ("--only", f"id={cell.id.replace(',', '?')}")]


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


_SHOWN = 20
_HINT = "CELL is a cell's id, parts of it such as kprobe, or a pattern: 'bpf-*'"
_IS_FILTER = re.compile(r"[*?=\[,]")


def cells_named(run: RunRecord, name: str) -> Sequence[CellRecord]:
    """The cell with this id, the cells whose ids have all of its parts, or those that a filter selects.

    Raises UsageError where there is none.
    """
    ids = [cell.id for cell in run.cells]
    if _IS_FILTER.search(name) and not _with_parts(ids, name):
        try:
            wanted = CellFilter.of(name)
        except FilterError as error:
            raise UsageError(str(error), where=f"cell {name!r}", hint=error.hint) from None
        if chosen := [cell for cell in run.cells if wanted.matches(names_of(cell))]:
            return chosen
    found = set(ids_named(ids, name, f"run {run.run}"))
    return [cell for cell in run.cells if cell.id in found]


def ids_named(ids: Sequence[str], name: str, where: str) -> Sequence[str]:
    """The id of this name, or the ids that have all of its parts, patterns among them; ``where`` says what has them.

    Raises UsageError where there is none.
    """
    found = _with_parts(ids, name)
    if not found:
        guess = nearest(name, list(dict.fromkeys(part for one in ids for part in one.split("/"))))
        hint = f"did you mean '{guess}'?" if guess else _HINT
        raise UsageError(f"{where} has no cell '{name}'", detail=["cells:", *ids[:_SHOWN]], hint=hint)
    return found


def _with_parts(ids: Sequence[str], name: str) -> Sequence[str]:
    if name in ids:
        return [name]
    wanted = name.split("/")
    parts = {one: one.split("/") for one in ids}
    return [one for one in ids if all(any(fnmatchcase(part, each) for part in parts[one]) for each in wanted)]
