# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator build`` in a kernel tree, and that tree's kernel as the default of other commands."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from orchestrator.artifacts.kernel_build import build_lists
from orchestrator.artifacts.kernel_config import merged
from orchestrator.artifacts.kernels import ready_kernel
from orchestrator.artifacts.own_kernel_build import (
    ALL_MECHANISMS,
    BENEATH,
    TreeBuild,
    lacking_for_mechanisms,
    needed_options,
)
from orchestrator.artifacts.toolchain import tree_toolchain
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.kernels import read_config, setting_options
from orchestrator.cli import options
from orchestrator.errors import UsageError
from orchestrator.library import tree_experiments
from orchestrator.paths import AWKWARD, kbuild_takes
from orchestrator.program import PROGRAM, check_all_installed


def tree_kernel(tree: Path | None, given: str | None = None, option: str = "--kernel") -> str | None:
    """The kernel that ``option`` names, else the path of the tree given or around; None outside a tree.

    Says on stderr which tree it is. Raises UsageError for a wrong ``--tree``, ConfigError for a tree that is not built.
    """
    options.check_one({"--tree": tree is not None, option: given is not None})
    return tree_experiments.tree_kernel(options.say, tree, option) if given is None else given


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
    folder = tree_experiments.named_tree(tree)
    if folder is None:
        raise UsageError("the current folder is in no kernel tree", hint="change into one, or name it: --tree DIR")
    if not kbuild_takes(folder):
        raise UsageError(f"a kernel cannot be built in {folder}: its path has {AWKWARD}", hint="move or rename it")
    config, is_new = folder / ".config", not (folder / ".config").is_file()
    # Without pahole the configuration silently loses its option.
    text = merged(kernel_spec(ALL_MECHANISMS)) if is_new else config.read_text(errors="replace")
    check_all_installed(build_lists("a kernel", text))
    with options.building(offline=offline, verbose=verbose) as context:
        if is_new:
            TreeBuild(config, make or ()).configure(folder, options.say)
        TreeBuild(config, make or ()).check()
        _check_options(folder)
        # As it was configured: make would take another compiler for a change of everything.
        variables = make or tree_toolchain(context, read_config(config)).for_make()
        tree_build = TreeBuild(config, tuple(variables))
        tree_build.complete(folder)
        lacking = _check_options(folder)  # what others do not allow is gone now, not after the build
        if lacking:
            options.say(f"some mechanisms cannot be measured without {', '.join(lacking)}")
            options.say(f"to have them, {setting_options(folder, lacking)}")
        tree_build.build(folder, options.say)
        kernel = ready_kernel(context, kernel_spec(str(folder)))
    options.say(f"built {kernel.release}; measure all mechanisms on it, in the tree: {PROGRAM} run")
    typer.echo(kernel.image)


def _check_options(folder: Path) -> Sequence[str]:
    """The options that mechanisms lack. Raises UsageError for a kernel that no guest could run."""
    config = read_config(folder / ".config")
    needed = needed_options(folder / ".config")
    more = lacking_for_mechanisms(tree_experiments.source_of(folder) or folder, config)
    if needed:
        detail = [f"{option}: {why}" for option, why in needed.items()]
        beneath = [f"CONFIG_{name}" for name in BENEATH if f"CONFIG_{name}" not in config]
        setting = setting_options(folder, [*beneath, *needed, *more])
        hint = f"remove it to get the lab's; or, for all mechanisms, {setting}"
        raise UsageError("the lab cannot use this configuration", where=f"{folder}/.config", detail=detail, hint=hint)
    return more
