# SPDX-License-Identifier: GPL-2.0-only
"""The kernel of a tree, configured for the lab where it has no configuration, and built."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_build import build_lists
from orchestrator.artifacts.kernel_config import merged
from orchestrator.artifacts.own_kernel_build import (
    ALL_MECHANISMS,
    BENEATH,
    TreeBuild,
    lacking_for_mechanisms,
    needed_options,
)
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.artifacts.toolchain import tree_toolchain
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.kernels import read_config, setting_options
from orchestrator.errors import UsageError
from orchestrator.host_packages import check_all_installed
from orchestrator.library.tree_experiments import named_tree, source_of
from orchestrator.paths import AWKWARD, kbuild_takes


def built_tree(context: BuildContext, tree: Path | None, make: Sequence[str] = ()) -> Kernel:
    """Build the kernel of the tree given, or of that around the current folder, with these make variables.

    A tree without a configuration gets one: the lab's options over the tree's own defaults. Another configuration stays
    as it is; the listener is told what mechanisms lack. Raises UsageError for what is no tree and for a configuration
    that the lab cannot use, HostError for missing packages, BuildError.
    """
    folder = named_tree(tree)
    if folder is None:
        raise UsageError("the current folder is in no kernel tree", hint="change into one, or name it: --tree DIR")
    if not kbuild_takes(folder):
        raise UsageError(f"a kernel cannot be built in {folder}: its path has {AWKWARD}", hint="move or rename it")
    config, is_new = folder / ".config", not (folder / ".config").is_file()
    # Without pahole the configuration silently loses its option.
    text = merged(kernel_spec(ALL_MECHANISMS)) if is_new else config.read_text(errors="replace")
    check_all_installed(build_lists("a kernel", text))
    if is_new:
        TreeBuild(config, make).configure(folder, context.say)
    TreeBuild(config, make).check()
    _check_options(folder)
    # As it was configured: make would take another compiler for a change of everything.
    variables = make or tree_toolchain(context, read_config(config)).for_make()
    tree_build = TreeBuild(config, tuple(variables))
    tree_build.complete(folder)
    lacking = _check_options(folder)  # what others do not allow is gone now, not after the build
    if lacking:
        context.say(f"some mechanisms cannot be measured without {', '.join(lacking)}")
        context.say(f"to have them, {setting_options(folder, lacking)}")
    tree_build.build(folder, context.say)
    return ready_kernel(context, kernel_spec(str(folder)))


def _check_options(folder: Path) -> Sequence[str]:
    """The options that mechanisms lack. Raises UsageError for a kernel that no guest could run."""
    config = read_config(folder / ".config")
    needed = needed_options(folder / ".config")
    more = lacking_for_mechanisms(source_of(folder) or folder, config)
    if needed:
        detail = [f"{option}: {why}" for option, why in needed.items()]
        beneath = [f"CONFIG_{name}" for name in BENEATH if f"CONFIG_{name}" not in config]
        setting = setting_options(folder, [*beneath, *needed, *more])
        hint = f"remove it to get the lab's; or, for all mechanisms, {setting}"
        raise UsageError("the lab cannot use this configuration", where=f"{folder}/.config", detail=detail, hint=hint)
    return more
