# SPDX-License-Identifier: GPL-2.0-only
"""The file of budgets beside a test file: instructions by test, label, kernel and CPU.

    test_the_call[pentium4]:
      getppid:
        debian-686 6.1.0-41-686, pentium4: 422
      sh:
        debian-686 6.1.0-41-686, pentium4: 1234567 +2%
      getpid:
        debian-686 6.1.0-41-686, pentium4: <=300
      getppid:
        debian-686 6.1.0-41-686, pentium4:
          instructions: 369
          symbols:
            callbench: 13
            entry_SYSENTER_32: 60

A plain number is the count, and a hard budget: one instruction more is too many. With an increase it is soft. ``<=N``
is a user's own limit, which is never rewritten. The symbols, which are optional, show where a broken budget has grown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from orchestrator.artifacts.cache import Cache, digest
from orchestrator.catalog.unique_keys import DuplicateKeyError, load_unique
from orchestrator.errors import ConfigError
from orchestrator.files import read_bounded_text, write_whole
from orchestrator.results.budgets import Budget, BudgetError

SUFFIX = ".budgets.yaml"
_HEAD = "# Instructions that tests may take. pytest --qemu --qemu-update-budgets writes what it counts.\n"
_LARGEST = 4 << 20

Budgets = dict[str, dict[str, dict[str, Any]]]
"""Texts of budgets by test, label, and the machine that they were counted on."""

_BUDGETS = TypeAdapter(Budgets)


class _BySymbol(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instructions: Any
    symbols: dict[str, int | float]


@dataclass(frozen=True)
class CommittedBudget:
    """A budget in a file: a count, with or without an allowed increase, or a limit set by a user.

    ``symbols`` has the count of each symbol, if known.
    """

    budget: Budget
    symbols: Mapping[str, float] | None = None

    @property
    def figure(self) -> Fraction:
        """The committed count or limit."""
        figure = self.budget.counted if self.budget.limit is None else self.budget.limit
        assert figure is not None  # BudgetFile refuses what adds to no number
        return Fraction(figure)

    @property
    def most(self) -> Fraction:
        assert self.budget.most is not None
        return Fraction(self.budget.most)

    @property
    def is_limit(self) -> bool:
        return self.budget.limit is not None

    def __str__(self) -> str:
        return str(self.budget)


class BudgetFile:
    """The budgets of one test file, in ``NAME.budgets.yaml`` beside it. Several processes may write it."""

    def __init__(self, test_file: Path, cache: Cache) -> None:
        self._cache = cache  # used for its locks, as the folder may be in a repository
        self.path = test_file.with_name(test_file.stem + SUFFIX)

    def find(self, test: str, label: str, machine: str) -> CommittedBudget | None:
        """The budget, if there is one. Raises ConfigError for a malformed file."""
        text = self._read().get(test, {}).get(label, {}).get(machine)
        return None if text is None else self._parsed(text)

    def machines(self, test: str, label: str) -> list[str]:
        return list(self._read().get(test, {}).get(label, {}))

    def write(self, test: str, label: str, machine: str, budget: CommittedBudget) -> None:
        with self._cache.lock(f"budgets-{digest(str(self.path))}"):
            budgets = self._read()
            text = str(budget)
            value: object = int(text) if text.isdecimal() else text
            if budget.symbols is not None:
                symbols = {name: int(n) if float(n).is_integer() else n for name, n in budget.symbols.items()}
                value = {"instructions": value, "symbols": symbols}
            budgets.setdefault(test, {}).setdefault(label, {})[machine] = value
            try:
                write_whole(self.path, _HEAD + yaml.safe_dump(budgets, sort_keys=True, width=120))
            except OSError as error:
                raise ConfigError(f"cannot be written: {error.strerror}", where=str(self.path)) from None

    def _read(self) -> Budgets:
        try:
            text = read_bounded_text(self.path, _LARGEST)
            if text is None:
                raise ConfigError("is too large for a file of budgets", where=str(self.path))
            content = load_unique(text) or {}
        except FileNotFoundError:
            return {}
        except DuplicateKeyError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConfigError(str(error.problem), where=f"{self.path}:{line}") from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot be read: {error}", where=str(self.path)) from None
        try:
            return _BUDGETS.validate_python(content, strict=True)
        except ValidationError:
            raise ConfigError("has to have budgets by test, label and machine", where=str(self.path)) from None

    def _parsed(self, text: object) -> CommittedBudget:
        if isinstance(text, dict):
            try:
                symbol = _BySymbol.model_validate(text, strict=True)
            except ValidationError:
                what = "a budget with symbols has instructions, and symbols with a number for each"
                raise ConfigError(f"found {str(text)[:80]!r}; {what}", where=str(self.path)) from None
            return replace(self._parsed(symbol.instructions), symbols=symbol.symbols)
        try:
            budget = Budget.of(text)
        except BudgetError as error:
            raise ConfigError(str(error), where=str(self.path)) from None
        if budget.most is None:
            what = f"found {text!r}, which adds to no number; write what was counted before it: N {budget}"
            raise ConfigError(what, where=str(self.path))
        return CommittedBudget(budget)
