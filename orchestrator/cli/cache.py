# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator cache``: what was fetched and built, and how much room it takes."""

from __future__ import annotations

import typer

from orchestrator.cli.failures import expected_failures

app = typer.Typer(help="What was fetched and built.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `show` a command of its own although it is the only one."""


@app.command("show")
@expected_failures
def show() -> None:
    """List the artifacts in the cache with their sizes."""
    from rich.console import Console
    from rich.table import Table

    from orchestrator.artifacts.cache import Cache
    from orchestrator.paths import cache_dir

    cache = Cache(cache_dir())
    table = Table("kind", "what", "key", box=None, header_style="bold", pad_edge=False)
    table.add_column("MB", justify="right")
    total = 0
    for artifact in cache.artifacts():
        size = artifact.size()
        total += size
        table.add_row(artifact.kind, artifact.label, artifact.key, f"{size / 1e6:.1f}")
    console = Console()
    if total:
        console.print(table)
    console.print(f"{total / 1e6:.1f} MB in {cache.root}", soft_wrap=True, highlight=False)
