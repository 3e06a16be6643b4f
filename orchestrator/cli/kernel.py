# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator kernel``: kernels built from source, and the features of each kernel."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import completion, options
from orchestrator.cli.columns import print_columns
from orchestrator.cli.failures import expected_failures
from orchestrator.program import PROGRAM

app = typer.Typer(help="Kernels: build them, see what they can do.", no_args_is_help=True)


@app.command("build")
@expected_failures
def build(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help=f"Kernels; see: {PROGRAM} kernel list.", autocompletion=completion.kernels
        ),
    ],
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Build kernels from source (or fetch Debian's), and print where each one's image is."""
    from orchestrator.artifacts.kernels import ready_kernel
    from orchestrator.catalog.kernels import kernel

    specs = [kernel(name) for name in names]
    with options.printed_steps(verbose=verbose):
        context = options.open_context(offline=offline)
        for spec in specs:
            typer.echo(ready_kernel(context, spec).image)


@app.command("list")
@expected_failures
def show(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME...]",
            help="Only these, or build trees of your own by their paths.",
            autocompletion=completion.kernels,
        ),
    ] = None,
) -> None:
    """List the kernels; of those that are in the cache, the features by their own configuration."""
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.cache import Cache
    from orchestrator.artifacts.kernel_config import features
    from orchestrator.artifacts.kernels import ready_kernel
    from orchestrator.catalog.kernels import kernel as kernel_spec
    from orchestrator.catalog.kernels import kernels
    from orchestrator.errors import HostError
    from orchestrator.paths import cache_dir

    context = BuildContext(Cache(cache_dir()), offline=True)
    specs = [kernel_spec(name) for name in names] if names else kernels().values()
    columns = list(features({}))
    rows = []
    for spec in specs:
        try:
            kernel = ready_kernel(context, spec)
            found = features(kernel.config)
            rows.append([spec.name, kernel.release, *(found[column] for column in columns)])
        except HostError:
            if spec.tree is not None:
                raise
            rows.append([spec.name, "not here yet", *("" for _ in columns)])
    print_columns(["kernel", "release", *columns], rows)
