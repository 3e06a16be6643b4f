# SPDX-License-Identifier: GPL-2.0-only
"""Markdown as GitHub renders it: golden files, and that a guest's text stays text."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_builders import cells, failed, run
from report_examples import RUNS
from report_text import GOLDEN

from orchestrator.benchmarks.registry import reports
from orchestrator.report.text import escaped, render_markdown
from orchestrator.results.contract import CellRecord


@pytest.mark.parametrize("name", ["with_failures", "lists", "mail", "wall", "empty", "capabilities"])
def test_markdown_is_as_in_the_golden_file(name: str) -> None:
    assert render_markdown(RUNS[name], reports()) == (GOLDEN / f"markdown_{name}.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b", "a\\|b"),
        ("<script>&amp;", "&lt;script&gt;&amp;amp;"),
        ("*_`~[x](y)", "\\*\\_\\`\\~\\[x\\](y)"),
        ("@nobody broke #12", "@<!-- -->nobody broke #<!-- -->12"),
        ("see https://example.org and WWW.example.org", "see https&#58;//example.org and WWW&#46;example.org"),
        ("two\nlines", "two lines"),
        ("12.08", "12.08"),
    ],
)
def test_markup_is_shown_as_text(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_guests_lines_cannot_leave_their_fence() -> None:
    text = render_markdown(run(failed("kprobe", "it broke\n```\n# no heading\n````")), reports())
    assert "\n`````text\n```\n# no heading\n````\n`````\n" in text


def test_a_reason_cannot_begin_a_list_or_a_rule() -> None:
    text = render_markdown(run(failed("none", "- item"), failed("kprobe", "1. item", id="another")), reports())
    assert re.findall(r"^[ \t]*(?:-|\d+\.) .*", text, re.MULTILINE) == [
        "- Failed: 2 of 2 cells, the first pentium4/debian-686/none/noop: - item"
    ]


@given(st.lists(cells(), max_size=4, unique_by=lambda drawn: drawn.id))
def test_every_row_of_a_table_has_as_many_cells_as_its_head(drawn: list[CellRecord]) -> None:
    columns = None
    fenced = False
    for line in render_markdown(run(*drawn), reports()).split("\n"):
        fenced ^= line.startswith("```")
        if fenced or not line.startswith("| "):
            columns = None
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        assert columns in (None, count)
        columns = count
