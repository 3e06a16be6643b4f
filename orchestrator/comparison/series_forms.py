# SPDX-License-Identifier: GPL-2.0-only
"""A series in the formats of ``series``: what each of them writes."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.comparison.series import MeasuredSeries, cover_letter, mail, series_sheets
from orchestrator.comparison.series_json import PrintedSeries
from orchestrator.report.markdown import render_sheets
from orchestrator.report.output import Output
from orchestrator.report.text import print_sheets


@dataclass(frozen=True)
class SeriesView:
    """A series to print, with at most ``limit`` symbols of a change."""

    measured: MeasuredSeries
    limit: int | None


def write_table(view: SeriesView, output: Output) -> None:
    """Write tables in the console's width."""
    print_sheets(series_sheets(view.measured, view.limit), output.console)


def write_markdown(view: SeriesView, output: Output) -> None:
    """Write the same as Markdown."""
    output.text(render_sheets("Series", series_sheets(view.measured, view.limit)))


def write_cover(view: SeriesView, output: Output) -> None:
    """Write the tables of a cover letter."""
    output.text(f"{cover_letter(view.measured)}\n")


def write_mail(view: SeriesView, output: Output) -> None:
    """Write mails to the authors of what regressed, or a note if nothing did."""
    text = mail(view.measured)
    if text is None:
        output.note("no cell regressed with a commit of the series: there is nothing to write")
    else:
        output.text(f"{text}\n")


def write_json(view: SeriesView, output: Output) -> None:
    """Write JSON for programs."""
    output.text(f"{PrintedSeries.of(view.measured).json_text()}\n")
