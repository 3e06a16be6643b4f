# SPDX-License-Identifier: GPL-2.0-only
"""The page of recipes of images."""

from __future__ import annotations

from orchestrator.catalog.written_recipe import WrittenRecipe

from .markdown import fenced, filled
from .markdown import page as whole_page
from .schemas import sections_to_write

_EXAMPLE = """\
title: Debian with a profiler
base: debian-amd64
packages: [linux-perf]
"""


def page() -> str:
    """All keys of a recipe."""
    return whole_page(
        "Recipes of images",
        [
            filled(
                """A recipe is a YAML file, from which `./lab build image ./mine.yaml` builds a Debian for guests.
                [Images](../images.md) says how a guest uses it."""
            ),
            fenced(_EXAMPLE, "yaml"),
            *sections_to_write({"Keys": WrittenRecipe}),
        ],
    )
