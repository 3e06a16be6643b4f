# SPDX-License-Identifier: GPL-2.0-only
"""A run as tables, as Markdown and as JSON: what these formats write."""

from __future__ import annotations

from orchestrator.report.markdown import render_markdown
from orchestrator.report.output import Output
from orchestrator.report.run_view import RunView
from orchestrator.report.text import print_table
from orchestrator.results.contract import json_text


def write_table(printed: RunView, output: Output) -> None:
    """Write tables in the console's width."""
    print_table(printed.run.record, output.console, printed.registry, printed.claims)


def write_markdown(printed: RunView, output: Output) -> None:
    """Write the same as Markdown."""
    output.text(render_markdown(printed.run.record, printed.registry, printed.claims))


def write_json(printed: RunView, output: Output) -> None:
    """Write the result contract."""
    output.text(json_text(printed.run.record))
