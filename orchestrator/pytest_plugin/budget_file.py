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

A number is what was counted, and hard: one instruction more is too many. With a percentage it is soft. Behind ``<=``
stands a limit of one's own, which is not written anew. The symbols say where a budget that is broken has grown; a
budget may be without.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from orchestrator.artifacts.cache import Cache, digest
from orchestrator.errors import ConfigError
from orchestrator.whole_file import write_whole

SUFFIX = ".budgets.yaml"

_HEAD = "# Instructions that tests may take. pytest --qemu --qemu-update-budgets writes what it counts.\n"
_NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
_BUDGET = re.compile(rf"{_NUMBER}(?: \+(\d{{1,3}}(?:\.\d{{1,3}})?)%)?|<= ?{_NUMBER}")
_EXPECTED = "a budget is the number that was counted, that with +N%, or <=N for a limit of your own"
_LARGEST = 4 << 20
_INSTRUCTIONS, _SYMBOLS = "instructions", "symbols"

Budgets = dict[str, dict[str, dict[str, Any]]]
"""Texts of budgets by test, label, and the machine that they were counted on."""


@dataclass(frozen=True)
class Budget:
    """At most so many ``instructions``, and ``percent`` more. ``symbols`` is what each had of them, where known.

    ``is_limit`` is for a number that nobody counted.
    """

    instructions: float
    percent: float = 0.0
    symbols: Mapping[str, float] | None = None
    is_limit: bool = False

    @property
    def most(self) -> float:
        """The largest count within the budget."""
        return self.instructions * (1 + self.percent / 100)

    def __str__(self) -> str:
        """The budget as in the file."""
        text = f"{'<=' if self.is_limit else ''}{self.instructions:.15g}"
        return text + (f" +{self.percent:g}%" if self.percent else "")


class BudgetFile:
    """The budgets of one test file, in ``NAME.budgets.yaml`` beside it. Several processes may write it."""

    def __init__(self, test_file: Path, cache: Cache) -> None:
        self._cache = cache  # of which the locks are used: the folder may be in a repository
        self.path = test_file.with_name(test_file.stem + SUFFIX)

    def find(self, test: str, label: str, machine: str) -> Budget | None:
        """The budget, if there is one. Raises ConfigError for a file that is none."""
        text = self._read().get(test, {}).get(label, {}).get(machine)
        return None if text is None else self._parsed(text)

    def machines(self, test: str, label: str) -> list[str]:
        """The machines that have a budget for this."""
        return list(self._read().get(test, {}).get(label, {}))

    def write(self, test: str, label: str, machine: str, budget: Budget) -> None:
        """Write a budget into the file, which is made where there is none."""
        with self._cache.lock(f"budgets-{digest(str(self.path))}"):
            budgets = self._read()
            text = str(budget)
            value: object = int(text) if text.isdecimal() else text
            if budget.symbols is not None:
                value = {
                    _INSTRUCTIONS: value,
                    _SYMBOLS: {name: _plain(count) for name, count in budget.symbols.items()},
                }
            budgets.setdefault(test, {}).setdefault(label, {})[machine] = value
            try:
                write_whole(self.path, _HEAD + yaml.safe_dump(budgets, sort_keys=True, width=120))
            except OSError as error:
                raise ConfigError(f"cannot be written: {error.strerror}", where=str(self.path)) from None

    def _read(self) -> Budgets:
        try:
            if self.path.stat().st_size > _LARGEST:
                raise ConfigError("is too large for a file of budgets", where=str(self.path))
            content = yaml.safe_load(self.path.read_text(encoding="utf-8")) or {}
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConfigError(f"cannot be read: {error}", where=str(self.path)) from None
        if not _is_nested(content, 3):
            raise ConfigError("has to have budgets by test, label and machine", where=str(self.path))
        budgets: Budgets = content
        return budgets

    def _parsed(self, text: object) -> Budget:
        if isinstance(text, dict):
            symbols = text.get(_SYMBOLS)
            if set(text) != {_INSTRUCTIONS, _SYMBOLS} or not _are_counts(symbols):
                what = "a budget with symbols has instructions, and symbols with a number for each"
                raise ConfigError(f"found {str(text)[:80]!r}; {what}", where=str(self.path))
            return replace(self._parsed(text[_INSTRUCTIONS]), symbols=symbols)
        match = _BUDGET.fullmatch(str(text))
        if match is None:
            raise ConfigError(f"found {text!r}; {_EXPECTED}", where=str(self.path))
        if match[3]:
            return Budget(float(match[3]), is_limit=True)
        return Budget(float(match[1]), float(match[2] or 0))


def _are_counts(symbols: object) -> bool:
    return isinstance(symbols, dict) and all(
        isinstance(name, str) and isinstance(count, int | float) and not isinstance(count, bool)
        for name, count in symbols.items()
    )


def _plain(count: float) -> float:
    """A whole number as one."""
    return int(count) if float(count).is_integer() else count


def _is_nested(content: object, depth: int) -> bool:
    """Whether this is a mapping of texts to mappings, and so on."""
    if depth == 0:
        return True
    if not isinstance(content, dict):
        return False
    return all(isinstance(key, str) and _is_nested(value, depth - 1) for key, value in content.items())
