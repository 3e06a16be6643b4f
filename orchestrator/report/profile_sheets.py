# SPDX-License-Identifier: GPL-2.0-only
"""Profiles, and differences between two of them, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from orchestrator.report.figures import NOTHING, number
from orchestrator.report.grid import Grid, Row
from orchestrator.report.sheet import Sheet
from orchestrator.results.profile import CellProfile, SymbolProfile
from orchestrator.results.profile_difference import ProfileDifference, SymbolDifference

USER = "user space"


def profile_sheet(profile: CellProfile, classes: Mapping[str, Fraction]) -> Sheet:
    """A cell's instructions per call by symbol, and by class where there are ``classes``."""
    total, unit = Fraction(profile.executed, profile.calls), profile.unit
    symbols = [
        Row(symbol_title(one), [_number(Fraction(one.executed, profile.calls)), _share(one.executed, profile.executed)])
        for one in profile.symbols
    ]
    by_class = [Row(name, [_number(one), ""]) for name, one in classes.items()]
    sums = [Row("all", [_number(total), _share(profile.executed, profile.executed)], "bold")]
    return Sheet(
        title=profile.cell,
        facts=[f"instructions per {unit}, mean of {profile.calls} {unit}s; each was counted by QEMU"],
        grid=Grid([f"per {unit}", "share"], [block for block in (symbols, sums, by_class) if block], together=2),
        sentences=["Inlined functions count for the function that they are in."],
        footnotes=[],
        proofs=[],
    )


def difference_sheet(difference: ProfileDifference) -> Sheet:
    """The symbols that differ, the largest change first."""
    before, after = difference.totals
    rows = [_difference_row(one) for one in difference.symbols]
    sums = Row("all", [_number(before), _number(after), _signed(after - before), ""], "bold")
    same = "1 symbol is" if difference.equal == 1 else f"{difference.equal} symbols are"
    return Sheet(
        title=f"{difference.before.cell} -> {difference.after.cell}",
        facts=["instructions per call"],
        grid=Grid(["before", "after", "change", ""], [block for block in (rows, [sums]) if block], together=4),
        sentences=[f"{same} equal in both."],
        footnotes=[],
        proofs=[],
    )


def _difference_row(one: SymbolDifference) -> Row:
    mark = "new" if one.before is None else "gone" if one.after is None else ""
    before, after = (NOTHING if value is None else _number(value) for value in (one.before, one.after))
    return Row(one.title, [before, after, _signed(one.change), mark])


def symbol_title(symbol: SymbolProfile) -> str:
    """A symbol as it is printed."""
    return f"{symbol.name} ({USER})" if symbol.place == "user" else symbol.placed_title


def _number(value: Fraction) -> str:
    return number(float(value))


def _signed(value: Fraction) -> str:
    return f"+{_number(value)}" if value > 0 else _number(value)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else NOTHING
