# SPDX-License-Identifier: GPL-2.0-only
"""Lists in columns: whole in a pipe, where a program may read them, and never cut on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer

from orchestrator.plain_text import plain_line


def print_columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under a header, each column as wide as its widest entry; numbers to the right."""
    table = [[plain_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(header), *table]) for i in range(len(header))]
    typer.secho(_line(header, widths), bold=True)
    for row in table:
        typer.echo(_line(row, widths))


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = (cell.rjust(w) if _is_number(cell) else cell.ljust(w) for cell, w in zip(row, widths, strict=True))
    return "  ".join(cells).rstrip()


def _is_number(cell: str) -> bool:
    return cell.replace(".", "", 1).isdecimal()
