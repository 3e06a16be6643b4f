# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator image``: the disks that guests with a whole Debian start from."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli import completion, options
from orchestrator.cli.columns import print_columns
from orchestrator.cli.failures import expected_failures
from orchestrator.program import PROGRAM

app = typer.Typer(help="Disk images: build them, see what is in them.", no_args_is_help=True)


@app.command("build")
@expected_failures
def build(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...",
            help=f"Images (see: {PROGRAM} image list), or recipes of your own by their paths.",
            autocompletion=completion.images,
        ),
    ],
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Build images, and print where each one's base is. It is read-only; guests write to overlays."""
    from orchestrator.artifacts.images import ready_image
    from orchestrator.catalog.images import image

    recipes = [image(name) for name in names]
    with options.printed_steps(verbose=verbose):
        context = options.open_context(offline=offline)
        for recipe in recipes:
            typer.echo(ready_image(context, recipe).base)


@app.command("list")
@expected_failures
def show(
    packages: Annotated[
        str | None,
        typer.Option(
            "--packages",
            metavar="NAME",
            help="Instead, the packages of this image and their versions.",
            autocompletion=completion.images,
        ),
    ] = None,
) -> None:
    """List the images; of those that are in the cache, their size and what is in them."""
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.cache import Cache
    from orchestrator.artifacts.images import cached_image
    from orchestrator.catalog.images import image, images
    from orchestrator.errors import HostError
    from orchestrator.paths import cache_dir

    context = BuildContext(Cache(cache_dir()), offline=True)
    if packages is not None:
        recipe = image(packages)
        found = cached_image(context, recipe)
        if found is None:
            hint = f"{PROGRAM} image build {packages}"
            raise HostError(f"image {recipe.name} is not here yet, and its packages are not chosen", hint=hint)
        print_columns(["package", "version"], sorted(found.packages.items()))
        return
    rows = []
    for recipe in images().values():
        found = cached_image(context, recipe)
        facts = [recipe.name, recipe.arch, recipe.init]
        if found is None:
            rows.append([*facts, "not here yet", "", "", recipe.title])
        else:
            megabytes = found.base.stat().st_blocks * 512 / 1e6
            rows.append([*facts, f"{megabytes:.1f}", str(len(found.packages)), found.tree[:12], recipe.title])
    print_columns(["image", "arch", "init", "MB", "packages", "files", ""], rows)
