# SPDX-License-Identifier: GPL-2.0-only
"""A comparison in the formats of ``compare``: what each of them writes."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.comparison.comparison import ComparedRuns
from orchestrator.comparison.comparison_json import PrintedComparison
from orchestrator.comparison.comparison_sheet import comparison_comment, comparison_sheet, render_comparison
from orchestrator.report.output import Output
from orchestrator.report.text import print_sheets


@dataclass(frozen=True)
class ComparisonView:
    """A comparison to print, with at most ``limit`` of its changed cells."""

    compared: ComparedRuns
    limit: int | None


def write_table(view: ComparisonView, output: Output) -> None:
    """Write tables in the console's width."""
    print_sheets([comparison_sheet(view.compared, view.limit)], output.console)


def write_markdown(view: ComparisonView, output: Output) -> None:
    """Write the same as Markdown."""
    output.text(render_comparison(view.compared, view.limit))


def write_comment(view: ComparisonView, output: Output) -> None:
    """Write a comment of a pull request."""
    output.text(comparison_comment(view.compared, view.limit))


def write_json(view: ComparisonView, output: Output) -> None:
    """Write JSON for programs."""
    output.text(f"{PrintedComparison.of(view.compared).model_dump_json(indent=2)}\n")
