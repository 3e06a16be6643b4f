# SPDX-License-Identifier: GPL-2.0-only
"""Sheets in the formats of ``profile``, ``disasm`` and ``bisect``: what each of them writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.report.markdown import render_sheets
from orchestrator.report.output import Output
from orchestrator.report.sheet import Sheet
from orchestrator.report.text import print_sheets


@dataclass(frozen=True)
class SheetsView:
    """Sheets to print under a ``title``, and the JSON that has the same for programs; only what is printed is made."""

    title: str
    sheets: Iterable[Sheet]
    json: Callable[[], str]


def write_table(printed: SheetsView, output: Output) -> None:
    """Write tables in the console's width."""
    print_sheets(list(printed.sheets), output.console)


def write_markdown(printed: SheetsView, output: Output) -> None:
    """Write the same as Markdown."""
    output.text(render_sheets(printed.title, list(printed.sheets)))


def write_json(printed: SheetsView, output: Output) -> None:
    """Write JSON for programs."""
    output.text(f"{printed.json()}\n")
