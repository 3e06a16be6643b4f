# SPDX-License-Identifier: GPL-2.0-only
"""The kernel tree around the current folder, and experiments that are measured on its kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.artifacts.own_kernel_build import is_kernel_source
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.source import kernels_override, names_kernels, sets_kernels
from orchestrator.paths import data_dir, user_path
from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.library.measurer import Measurer


def source_of(folder: Path) -> Path | None:
    """The kernel source of its own folder, or of a build folder (O=), where kbuild leaves a link to it."""
    return next((path for path in (folder, folder / "source") if is_kernel_source(path)), None)


def tree_around() -> Path | None:
    """The kernel tree, or its build folder, that the current folder is, or is in; None elsewhere."""
    try:
        folder = Path.cwd()
        return next((path for path in (folder, *folder.parents) if source_of(path) is not None), None)
    except OSError:  # it was removed, or a folder above is not for this user
        return None


def named_tree(given: Path | None) -> Path | None:
    """The tree given, or around the current folder; None without one. Raises UsageError for what is no tree."""
    if given is None:
        return tree_around()
    folder = user_path(str(given)).resolve()
    if source_of(folder) is None:
        what = "this is not a kernel's tree: it has no Kconfig and arch/x86/Makefile"
        raise UsageError(what, where=str(folder), hint="name the top of a tree, or its build folder (O=)")
    return folder


def tree_kernel(
    say: Callable[[str], None], tree: Path | None, option: str = "", argument: str = "--tree"
) -> str | None:
    """The path of the kernel tree given by an ``argument`` or around, which is said; None outside a tree.

    ``option`` names another kernel. Raises UsageError for what is no tree, ConfigError for a tree that is not built.
    """
    path = named_tree(tree)
    if path is None:
        return None
    try:
        kernel_spec(str(path))
    except ConfigError as error:
        or_another = f"; or name another kernel: {option}" if tree is None and option else ""
        raise ConfigError(error.what, hint=f"{error.hint}{or_another}") from None
    say(f"kernel: {'this tree' if tree is None else argument}, {path}")
    return str(path)


def _own(config: Path) -> Path:
    """The lab's own file for a ``configs/NAME.yaml`` that the caller's folder lacks, as without a checkout."""
    path = data_dir("configs") / config.name
    return path if config.parent == Path("configs") and not config.exists() and path.is_file() else config


_MECHANISMS = "today"


def experiments(
    measurer: Measurer, configs: Sequence[Path], overrides: Sequence[str], tree: Path | None
) -> Sequence[tuple[Path, Sequence[str]]]:
    """The experiment files to run, each with its overrides: a file that names no kernel gets that of a tree.

    Without files, all mechanisms on that kernel. Raises UsageError, ConfigError.
    """
    configs = [_own(config) for config in configs]
    if configs and tree is None and tree_around() is None:
        return [(config, overrides) for config in configs]
    naming = [config for config in configs if names_kernels(config, overrides)]
    if naming and tree is not None:
        hint = f"leave out --tree, or replace them: --set 'kernels=[{named_tree(tree)}]'"
        raise UsageError("the experiment names kernels of its own", where=str(naming[0]), hint=hint)
    if not configs and sets_kernels(overrides):
        raise UsageError("--set names kernels, and CONFIG... is missing", hint="name the experiment file, too")
    if configs and len(naming) == len(configs):
        return [(config, overrides) for config in configs]
    name = tree_kernel(measurer.say, tree, argument=measurer.argument("tree"))
    if name is None:
        hint = f"for example {PROGRAM} run configs/quickstart.yaml; see: {PROGRAM} run -h"
        raise UsageError("CONFIG... is missing", hint=hint)
    on_it = [kernels_override(name), *overrides]
    if configs:
        return [(config, overrides if config in naming else on_it) for config in configs]
    # A name of its own: its runs have no cell in common with those of other kernels.
    experiment_name = re.sub(r"[^a-z0-9]+", "-", f"{_MECHANISMS}-{kernel_spec(name).name}".lower())
    return [(data_dir("configs") / f"{_MECHANISMS}.yaml", [f"name={experiment_name}", *on_it])]
