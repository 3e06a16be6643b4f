# SPDX-License-Identifier: GPL-2.0-only
"""Measured costs in the formats of ``cost``: what each of them writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.cost.cost_forms import cost_comment, cost_csv, veristat_csv
from orchestrator.cost.costs import explained
from orchestrator.cost.costs_json import PrintedCosts
from orchestrator.library.measured_costs import MeasuredCosts
from orchestrator.profile.printed.profile_sheets import difference_sheet
from orchestrator.report.markdown import render_sheets
from orchestrator.report.output import Output
from orchestrator.report.sheet import Sheet
from orchestrator.report.text import print_sheets

_SYMBOLS = 8
"""Listed symbols of a cost that is compared with another one."""


def write_table(measured: MeasuredCosts, output: Output) -> None:
    """Write tables in the console's width."""
    print_sheets(cost_sheets(measured), output.console)


def write_markdown(measured: MeasuredCosts, output: Output) -> None:
    """Write the same as Markdown."""
    output.text(render_sheets(measured.run.record.experiment, cost_sheets(measured)))


def cost_sheets(measured: MeasuredCosts) -> Sequence[Sheet]:
    """The costs, and what the changed ones execute more, by symbol."""
    sheets = [measured.sheet()]
    for cost, symbols in explained(measured.costs, measured.before, measured.run):
        title = f"{cost.subject.title} on {cost.cell.kernel}, by symbol"
        sheets.append(replace(difference_sheet(symbols, _SYMBOLS), title=title))
    return sheets


def write_comment(measured: MeasuredCosts, output: Output) -> None:
    """Write a comment of a pull request."""
    name = measured.run.record.experiment
    output.text(cost_comment(name, measured.costs, measured.missing, measured.before, measured.run, measured.gone))


def write_csv(measured: MeasuredCosts, output: Output) -> None:
    """Write CSV with a row for each program and kernel."""
    output.text(cost_csv(measured.costs))


def write_veristat(measured: MeasuredCosts, output: Output) -> None:
    """Write CSV with the columns of veristat."""
    output.text(veristat_csv(measured.costs))


def write_json(measured: MeasuredCosts, output: Output) -> None:
    """Write JSON for programs."""
    printed = PrintedCosts.of(measured.run.record, measured.costs, measured.missing, measured.reference)
    output.text(f"{printed.json_text()}\n")
