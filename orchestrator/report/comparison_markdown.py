# SPDX-License-Identifier: GPL-2.0-only
"""A comparison as a comment of a review: a line that says what it comes to, what changed, and the rest folded away."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.report.comparison_figures import (
    command,
    common_parts,
    experiments,
    origin_sentences,
    remarks,
    summary,
)
from orchestrator.report.comparison_sheet import comparison_sheet
from orchestrator.report.markdown import escaped, grid_table, paragraph, quoted
from orchestrator.results.compared_runs import ComparedRuns

_BEYOND, _WITHIN = "❌", "✅"
_LISTED = 100
"""Unchanged cells that are named: a comment on GitHub has at most 65536 characters."""


def render_comparison(compared: ComparedRuns, limit: int | None = None) -> str:
    """Return the comparison as GitHub-flavoured Markdown, without a heading: a comment has its own context."""
    mark = _BEYOND if compared.comparison.beyond else _WITHIN
    parts = [f"{mark} **{escaped(summary(compared))}**"]
    if compared.comparison.changed:
        sheet = comparison_sheet(compared, limit)
        parts.append(grid_table(sheet.grid))
        parts += [f"\\[{note.mark}\\] {escaped(note.text)}" for note in sheet.footnotes]
    rest = "\n\n".join(_rest(compared))
    parts.append(f"<details><summary>What was compared</summary>\n\n{rest}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def _rest(compared: ComparedRuns) -> Iterator[str]:
    sides = [compared.before.record.run, compared.after.record.run]
    runs = [f"run: `{sides[0]}`"] if sides[0] == sides[1] else [f"before: `{sides[0]}`", f"after: `{sides[1]}`"]
    cells = [escaped(sentence) for sentence in common_parts(compared)]
    yield "  \n".join([f"experiment {escaped(experiments(compared))}", *runs, *cells])
    origin = list(origin_sentences(compared))
    if origin:
        yield paragraph(*origin)
    said = list(remarks(compared))
    if said:
        yield paragraph(*said)
    unchanged = [one for one in compared.comparison.cells if one.change == "unchanged"]
    if unchanged:
        yield f"{len(unchanged)} unchanged: " + ", ".join(escaped(one.pair.title) for one in unchanged[:_LISTED])
    next_command = command(compared)
    if next_command:
        yield f"To decide what is undecided:\n\n{quoted(next_command.splitlines(), 'sh')}"
