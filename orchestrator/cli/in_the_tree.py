# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator build`` in a kernel tree, and that tree's kernel as the default of other commands."""

from __future__ import annotations

from pathlib import Path

import typer

from orchestrator.cli import options, printing
from orchestrator.library import tree_experiments
from orchestrator.library.tree_build import built_tree
from orchestrator.program import PROGRAM


def tree_kernel(tree: Path | None, given: str | None = None, option: str = "--kernel") -> str | None:
    """The kernel that ``option`` names, else the path of the tree given or around; None outside a tree.

    Says on stderr which tree it is. Raises UsageError for a wrong ``--tree``, ConfigError for a tree that is not built.
    """
    options.check_one({"--tree": tree is not None, option: given is not None})
    return tree_experiments.tree_kernel(printing.say, tree, option) if given is None else given


def build(
    tree: options.Tree = None,
    make: options.MakeVariables = None,
    offline: options.Offline = False,
    verbose: options.Verbose = False,
) -> None:
    """Build the kernel of a tree for the lab, and print the path of its image.

    A tree without a configuration gets one: the lab's options over the tree's own defaults. Another configuration stays
    as it is; the lab says what it lacks. In a tree, `build` alone is this command.
    """
    with options.building(offline=offline, verbose=verbose) as context:
        kernel = built_tree(context, tree, make or ())
    printing.say(f"built {kernel.release}; measure all mechanisms on it, in the tree: {PROGRAM} run")
    typer.echo(kernel.image)
