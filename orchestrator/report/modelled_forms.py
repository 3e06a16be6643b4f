# SPDX-License-Identifier: GPL-2.0-only
"""Modelled times and price lists in the formats of ``report`` and ``model``: what each of them writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.report.claims import Assessment, ClaimsLayout
from orchestrator.report.markdown import render_sheets
from orchestrator.report.modelled_sheets import modelled_sheets, modelled_summary, price_sheets
from orchestrator.report.output import Output
from orchestrator.report.text import print_sheets
from orchestrator.results.modelled import CpuPrices, ModelledRun, json_text
from orchestrator.results.runs import Run


@dataclass(frozen=True)
class TimesView:
    """The modelled times of a run to print, with the verdicts on claims by them."""

    run: Run
    modelled: ModelledRun
    assessments: Sequence[Assessment]
    claims: ClaimsLayout

    @property
    def summary(self) -> Sequence[str]:
        return modelled_summary(self.modelled, self.assessments)


def write_table(printed: TimesView, output: Output) -> None:
    """Write tables in the console's width."""
    claims = list(map(printed.claims, printed.assessments))
    print_sheets(modelled_sheets(printed.modelled), output.console, claims, printed.summary)


def write_markdown(printed: TimesView, output: Output) -> None:
    """Write the same as Markdown."""
    claims = list(map(printed.claims, printed.assessments))
    sheets = modelled_sheets(printed.modelled)
    output.text(render_sheets(printed.modelled.experiment, sheets, claims, printed.summary))


def write_json(printed: TimesView, output: Output) -> None:
    """Write JSON for programs."""
    output.text(json_text(printed.modelled))


@dataclass(frozen=True)
class PricesView:
    """A price list to print, and the text of its file."""

    prices: CpuPrices
    file: str


def write_prices(printed: PricesView, output: Output) -> None:
    """Write the list's tables."""
    print_sheets(price_sheets(printed.prices), output.console)


def write_prices_as_yaml(printed: PricesView, output: Output) -> None:
    """Write the list's file."""
    output.text(printed.file)


def write_prices_as_json(printed: PricesView, output: Output) -> None:
    """Write the list with its sources as JSON."""
    output.text(json_text(printed.prices))
