# SPDX-License-Identifier: GPL-2.0-only
"""Where a count has grown: the symbols with more instructions than before, in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from orchestrator.profile.stored.cell_profile import CellProfile
from orchestrator.pytest_plugin.budget_file import CommittedBudget
from orchestrator.results.exact import decimal_text

_MOST = 12
"""Symbols in a line."""

_ROUNDING = 1e-3
"""Instructions: counts of symbols are rounded means of some hundred calls."""


def where_it_grew(budget: CommittedBudget, after: Mapping[str, float]) -> Sequence[str]:
    """Lines with the symbols that have grown where a budget is exceeded; with its largest ones if it has no symbols."""
    if budget.symbols is None:
        return [f"most are in {largest(after)}", "the budget is without symbols: --qemu-update-budgets writes them"]
    symbols = sum(budget.symbols.values())
    if budget.is_limit or abs(symbols - float(budget.figure)) <= _ROUNDING:
        return [grown(budget.symbols, after)]
    edited = f"the budget was edited: its symbols add up to {symbols:.15g}, not to {decimal_text(budget.figure)}"
    return [f"{edited}; --qemu-update-budgets writes both", f"since its symbols: {grown(budget.symbols, after)}"]


def by_symbol(profile: CellProfile) -> Mapping[str, float]:
    """Instructions per call by symbol; functions of one name are added up."""
    sums: dict[str, Fraction] = {}
    for symbol in profile.symbols:
        sums[symbol.title] = sums.get(symbol.title, Fraction(0)) + Fraction(symbol.executed, profile.calls)
    return {title: float(count) for title, count in sums.items()}


def grown(before: Mapping[str, float], after: Mapping[str, float]) -> str:
    """The changes, the largest first: ``+626: kprobe_int3_handler 115 new, handle_exception 94 new``."""
    changes = {title: after.get(title, 0.0) - before.get(title, 0.0) for title in {**before, **after}}
    changed = sorted((title for title in changes if changes[title]), key=lambda title: (-abs(changes[title]), title))
    marks = [
        f"{title} {changes[title]:.10g}" + (" new" if title not in before else " gone" if title not in after else "")
        for title in changed
    ]
    return f"{sum(changes.values()):+.10g}: {_listed(marks) or 'no symbol differs'}"


def largest(after: Mapping[str, float]) -> str:
    """The symbols with the most instructions."""
    ordered = sorted(after, key=lambda title: (-after[title], title))
    return _listed([f"{title} {after[title]:.10g}" for title in ordered])


def _listed(parts: list[str]) -> str:
    more = len(parts) - _MOST
    return ", ".join([*parts[:_MOST], *([f"and {more} more"] if more > 0 else [])])
