# SPDX-License-Identifier: GPL-2.0-only
"""The formats of results: an entry for each, with the kinds of results that it prints and what writes them.

Commands offer the formats that their kind of result has (``Formats``); help, completion and errors are made from the
entries. A writer takes a result and an ``Output``, and is loaded when it writes. docs/adding-a-format.md adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.late_import import loaded
from orchestrator.report.output import Output

Result = Literal[
    "run", "modelled run", "price list", "histories", "comparison", "costs", "series", "time lines", "sheets"
]
"""A kind of result that a command prints."""


@dataclass(frozen=True)
class Format:
    """A form of results, by its ``name`` on the command line; ``help`` says in a few words what it is for."""

    name: str
    help: str
    writers: Mapping[Result, str]
    """``MODULE:FUNCTION`` by kind of result."""
    help_of: Mapping[Result, str] = field(default_factory=dict)
    """The words of help for a kind of result that has its own."""
    has_claims: bool = False
    """Whether it prints the claims of documents."""
    is_document: bool = False
    """Whether it is a whole document, so that several results cannot follow each other."""
    is_page: bool = False
    """Whether it goes to a file where stdout is a terminal."""

    def __str__(self) -> str:
        return self.name

    def write(self, kind: Result, result: object, output: Output) -> None:
        """Write the result to the output. Raises LabError for a result that this format cannot hold."""
        writer: Callable[[object, Output], None] = loaded(self.writers[kind])
        writer(result, output)


FORMATS: list[Format] = [
    Format(
        "table",
        "for people",
        {
            "run": "report.run_forms:write_table",
            "modelled run": "report.modelled_forms:write_table",
            "price list": "report.modelled_forms:write_prices",
            "histories": "report.history_forms:write_table",
            "comparison": "comparison.comparison_forms:write_table",
            "costs": "library.cost_writers:write_table",
            "series": "comparison.series_forms:write_table",
            "sheets": "report.sheet_forms:write_table",
        },
        has_claims=True,
    ),
    Format(
        "text",
        "for people",
        {"time lines": "profile.printed.timeline_forms:write_text"},
    ),
    Format(
        "markdown",
        "the same for GitHub",
        {
            "run": "report.run_forms:write_markdown",
            "modelled run": "report.modelled_forms:write_markdown",
            "comparison": "comparison.comparison_forms:write_markdown",
            "costs": "library.cost_writers:write_markdown",
            "series": "comparison.series_forms:write_markdown",
            "sheets": "report.sheet_forms:write_markdown",
        },
        has_claims=True,
    ),
    Format(
        "github",
        "a comment of a pull request that replaces itself",
        {
            "comparison": "comparison.comparison_forms:write_comment",
            "costs": "library.cost_writers:write_comment",
        },
        is_document=True,
    ),
    Format("cover", "for a cover letter", {"series": "comparison.series_forms:write_cover"}, is_document=True),
    Format(
        "mail", "to the author of what regressed", {"series": "comparison.series_forms:write_mail"}, is_document=True
    ),
    Format(
        "csv",
        "for spreadsheets",
        {
            "run": "report.csv_export:write",
            "histories": "report.history_forms:write_csv",
            "costs": "library.cost_writers:write_csv",
        },
        {"run": "a row per cell", "histories": "a row per run", "costs": "a row per program"},
    ),
    Format("veristat", "its columns, as CSV", {"costs": "library.cost_writers:write_veristat"}),
    Format(
        "yaml",
        "the file, to edit as your own table",
        {"price list": "report.modelled_forms:write_prices_as_yaml"},
    ),
    Format(
        "json",
        "for programs, complete",
        {
            "run": "report.run_forms:write_json",
            "modelled run": "report.modelled_forms:write_json",
            "price list": "report.modelled_forms:write_prices_as_json",
            "histories": "report.history_forms:write_json",
            "comparison": "comparison.comparison_forms:write_json",
            "costs": "library.cost_writers:write_json",
            "series": "comparison.series_forms:write_json",
            "sheets": "report.sheet_forms:write_json",
        },
        {"run": "the result contract"},
    ),
    Format("junit", "for CI systems", {"run": "report.junit_export:write"}, is_document=True),
    Format("bencher", "for its dashboard", {"run": "report.bencher_export:write"}, is_document=True),
    Format(
        "trace",
        "JSON for Perfetto and chrome://tracing",
        {"time lines": "profile.printed.timeline_forms:write_trace"},
        is_document=True,
    ),
    Format(
        "html",
        "a page with everything",
        {
            "run": "pages.run_page:write_html",
            "modelled run": "pages.run_page:write_modelled_html",
            "comparison": "pages.comparison_page:write_html",
            "costs": "library.cost_page:write_html",
            "time lines": "profile.printed.timeline_forms:write_html",
        },
        {"time lines": "a page"},
        is_document=True,
        is_page=True,
    ),
]


@dataclass(frozen=True)
class Formats:
    """The formats that a kind of result has, in the registry's order; the first one is the default."""

    kind: Result

    def all(self) -> Sequence[Format]:
        return [known for known in FORMATS if self.kind in known.writers]

    @property
    def default(self) -> Format:
        return self.all()[0]

    @property
    def names(self) -> Sequence[str]:
        return [known.name for known in self.all()]

    def named(self, name: str) -> Format | None:
        """The format of this name; None without one."""
        return next((known for known in self.all() if known.name == name), None)

    @property
    def help(self) -> str:
        """A sentence on all of them, such as ``table: for people; csv: a row per cell``."""
        words = (f"{known.name}: {known.help_of.get(self.kind, known.help)}" for known in self.all())
        return f"{'; '.join(words)}."
