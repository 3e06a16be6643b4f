# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator cache``: what was fetched and built, and how much room it takes."""

from __future__ import annotations

import typer

from orchestrator.cli.columns import print_columns
from orchestrator.cli.failures import expected_failures

app = typer.Typer(help="What was fetched and built.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `show` a command of its own although it is the only one."""


@app.command("show")
@expected_failures
def show() -> None:
    """List the artifacts in the cache with their sizes."""
    from orchestrator.artifacts.cache import Cache
    from orchestrator.paths import cache_dir

    cache = Cache(cache_dir())
    sizes = [(artifact, artifact.size() / 1e6) for artifact in cache.artifacts()]
    if sizes:
        rows = ([a.kind, a.label, a.key, f"{megabytes:.1f}"] for a, megabytes in sizes)
        print_columns(["kind", "what", "key", "MB"], rows)
    typer.echo(f"{sum(megabytes for _, megabytes in sizes):.1f} MB in {cache.root}")
