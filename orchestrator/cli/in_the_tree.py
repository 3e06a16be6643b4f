# SPDX-License-Identifier: GPL-2.0-only
"""``orchestrator build`` in a kernel tree, and that tree's kernel as the default of other commands."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import typer

from orchestrator.artifacts.kernel_build import build_lists, merged
from orchestrator.artifacts.kernels import ready_kernel
from orchestrator.artifacts.own_kernel_build import (
    ALL_MECHANISMS,
    BENEATH,
    TreeBuild,
    is_kernel_source,
    lacking_for_mechanisms,
    needed_options,
)
from orchestrator.artifacts.toolchain import tree_toolchain
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.kernels import read_config, setting_options
from orchestrator.cli import options
from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.source import kernels_override, names_kernels, sets_kernels
from orchestrator.paths import AWKWARD, data_dir, kbuild_takes, user_path
from orchestrator.program import PROGRAM, check_all_installed


def _source(folder: Path) -> Path | None:
    """The kernel source of its own folder, or of a build folder (O=), where kbuild leaves a link to it."""
    return next((path for path in (folder, folder / "source") if is_kernel_source(path)), None)


def tree_around() -> Path | None:
    """The kernel tree, or its build folder, that the current folder is, or is in; None elsewhere."""
    try:
        folder = Path.cwd()
        return next((path for path in (folder, *folder.parents) if _source(path) is not None), None)
    except OSError:  # it was removed, or a folder above is not for this user
        return None


def _tree(given: Path | None) -> Path | None:
    if given is None:
        return tree_around()
    folder = user_path(str(given)).resolve()
    if _source(folder) is None:
        what = "this is not a kernel's tree: it has no Kconfig and arch/x86/Makefile"
        raise UsageError(what, where=str(folder), hint="name the top of a tree, or its build folder (O=)")
    return folder


def tree_kernel(tree: Path | None, given: str | None = None, option: str = "--kernel") -> str | None:
    """The kernel that ``option`` names, else the path of the tree given or around; None outside a tree.

    Says on stderr which tree it is. Raises UsageError for a wrong ``--tree``, ConfigError for a tree that is not built.
    """
    options.check_one({"--tree": tree is not None, option: given is not None})
    path = _tree(tree) if given is None else None
    if path is None:
        return given
    try:
        kernel_spec(str(path))
    except ConfigError as error:
        or_another = f"; or name another kernel: {option}" if tree is None and option else ""
        raise ConfigError(error.what, hint=f"{error.hint}{or_another}") from None
    options.say(f"kernel: {'this tree' if tree is None else '--tree'}, {path}")
    return str(path)


def _own(config: Path) -> Path:
    """The lab's own file for a ``configs/NAME.yaml`` that the caller's folder lacks, as without a checkout."""
    path = data_dir("configs") / config.name
    return path if config.parent == Path("configs") and not config.exists() and path.is_file() else config


_MECHANISMS = "today"


def experiments(
    configs: Sequence[Path], overrides: Sequence[str], tree: Path | None
) -> Sequence[tuple[Path, Sequence[str]]]:
    """The experiment files to run, each with its overrides: a file that names no kernel gets that of a tree.

    Without files, all mechanisms on that kernel. Raises UsageError, ConfigError.
    """
    configs = [_own(config) for config in configs]
    if configs and tree is None and tree_around() is None:
        return [(config, overrides) for config in configs]
    naming = [config for config in configs if names_kernels(config, overrides)]
    if naming and tree is not None:
        hint = f"leave out --tree, or replace them: --set 'kernels=[{_tree(tree)}]'"
        raise UsageError("the experiment names kernels of its own", where=str(naming[0]), hint=hint)
    if not configs and sets_kernels(overrides):
        raise UsageError("--set names kernels, and CONFIG... is missing", hint="name the experiment file, too")
    if configs and len(naming) == len(configs):
        return [(config, overrides) for config in configs]
    name = tree_kernel(tree, option="")
    if name is None:
        hint = f"for example {PROGRAM} run configs/quickstart.yaml; see: {PROGRAM} run -h"
        raise UsageError("CONFIG... is missing", hint=hint)
    on_it = [kernels_override(name), *overrides]
    if configs:
        return [(config, overrides if config in naming else on_it) for config in configs]
    # A name of its own: its runs have no cell in common with those of other kernels.
    experiment_name = re.sub(r"[^a-z0-9]+", "-", f"{_MECHANISMS}-{kernel_spec(name).name}".lower())
    return [(data_dir("configs") / f"{_MECHANISMS}.yaml", [f"name={experiment_name}", *on_it])]


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
    folder = _tree(tree)
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
    more = lacking_for_mechanisms(_source(folder) or folder, config)
    if needed:
        detail = [f"{option}: {why}" for option, why in needed.items()]
        beneath = [f"CONFIG_{name}" for name in BENEATH if f"CONFIG_{name}" not in config]
        setting = setting_options(folder, [*beneath, *needed, *more])
        hint = f"remove it to get the lab's; or, for all mechanisms, {setting}"
        raise UsageError("the lab cannot use this configuration", where=f"{folder}/.config", detail=detail, hint=hint)
    return more
