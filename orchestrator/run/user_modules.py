# SPDX-License-Identifier: GPL-2.0-only
"""Modules that cells load: the user's own, by folder or file, and those of the lab's templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.diagnostics import warning_note
from orchestrator.artifacts.module_source import ModuleSource, Value, render, render_own
from orchestrator.artifacts.modules import (
    Module,
    build_modules,
    check_parameter_names,
    folder_modules,
    prebuilt,
    with_needed,
)
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.sources import UserSource, folder_source, line_source, user_source
from orchestrator.catalog.image_recipes import SUFFIX
from orchestrator.catalog.probes import PREFIX, ProbeKind, written
from orchestrator.errors import BuildError, ConfigError, UnsupportedError, UsageError
from orchestrator.run.benchmark_kind import Prepared, Ready, Refused, failed, unsupported


@dataclass(frozen=True)
class FolderModule:
    """A module that a user's folder builds: its ``name``, or None for the only one that has the ``parameters``."""

    folder: Path
    name: str | None
    parameters: tuple[str, ...]


OwnModule = ModuleSource | FolderModule | Path
"""What a cell's module is made of, or a built one."""


def own_module(kind: ProbeKind, values: Mapping[str, Value]) -> OwnModule | None:
    """A user's module, if the kind is one; a template is rendered with ``values``. Raises ConfigError, UsageError."""
    if kind.file is None:
        return None
    if kind.file.is_dir():
        return FolderModule(kind.file, kind.member, tuple(kind.parameters))
    return kind.file if kind.file.suffix == ".ko" else render_own(kind.file, values)


def module_outcomes(
    context: BuildContext, kernel: Kernel, module_sources: Mapping[str, OwnModule]
) -> Mapping[str, Module | Refused]:
    """The modules of cells, by cell id: built from source, or a user's .ko file; otherwise the reason for none.

    Raises ConfigError for a file that is not a module.
    """
    folders: dict[Path, Mapping[str, Module] | Refused] = {}
    outcomes: dict[str, Module | Refused] = {}
    sources = {
        id_: module_source for id_, module_source in module_sources.items() if isinstance(module_source, ModuleSource)
    }
    for id_, built in zip(sources, build_modules(context, kernel, list(sources.values())), strict=True):
        outcomes[id_] = failed(built) if isinstance(built, BuildError) else built
    for id_, source in module_sources.items():
        if isinstance(source, Path):
            try:
                outcomes[id_] = prebuilt(source, kernel)
            except UnsupportedError as error:
                outcomes[id_] = unsupported(str(error))
        elif isinstance(source, FolderModule):
            if source.folder not in folders:
                try:
                    folders[source.folder] = folder_modules(context, kernel, source.folder, {})
                except (BuildError, ConfigError) as error:
                    folders[source.folder] = failed(error)
            outcomes[id_] = _member(folders[source.folder], source)
    return outcomes


def _member(modules: Mapping[str, Module] | Refused, folder_module: FolderModule) -> Module | Refused:
    if isinstance(modules, Refused):
        return modules
    try:
        *needed, module = with_needed(modules, folder_module.folder, folder_module.name, folder_module.parameters)
    except UsageError as error:
        return failed(error)
    return replace(module, needed=tuple(needed))


def template_outcome(context: BuildContext, kernel: Kernel, template: str, smp: int) -> Prepared[Module]:
    """A module of ``kmods`` that all cells of a boot share, on a machine with ``smp`` CPUs."""
    (module,) = build_modules(context, kernel, [render(template, {})])
    if isinstance(module, BuildError):
        return failed(module)
    return Ready(module, (module,), (*smp_note(kernel, smp), *compiler_note(kernel, module)))


def with_parameters(module: Module, given: Mapping[str, str]) -> Module | Refused:
    """A user's module with load parameters; refused if it lacks one of them."""
    try:
        check_parameter_names(module, given)
    except UsageError as error:
        return Refused("failed", str(error), (module,))
    return replace(module, parameters=given)


def user_sources(kind: ProbeKind, module: OwnModule | None, image: str | None) -> Mapping[str, UserSource]:
    """The user's parts of a cell's probe and image: a module with its includes, a one-liner, a recipe."""
    sources: dict[str, UserSource] = {}
    if kind.one_liner is not None:
        sources["probe"] = line_source(f"{PREFIX} {kind.one_liner}")
    if kind.tool is not None and kind.tool.file is not None:
        sources["probe"] = user_source(kind.tool.file)
    elif kind.tool is not None and kind.one_liner is None:
        sources["probe"] = line_source(kind.title)
    if isinstance(module, FolderModule):
        sources["probe"] = folder_source(module.folder)
    elif kind.file is not None:
        sources["probe"] = user_source(kind.file, module.origins.values() if isinstance(module, ModuleSource) else [])
    if image is not None and image.endswith(SUFFIX):
        sources["image"] = user_source(Path(image))
    return sources


def smp_note(kernel: Kernel, cpus: int) -> tuple[str, ...]:
    """The note of an SMP kernel on one virtual CPU; empty for any other."""
    if not kernel.smp or cpus != 1:
        return ()
    # Linux 7.3 has no table of lock prefixes any more, and never removes them.
    has_table = kernel.code is None or ".smp_locks" in kernel.code.sections
    return ("an SMP kernel on one virtual CPU" + (", its lock prefixes kept (noreplace-smp)" if has_table else ""),)


def compiler_note(kernel: Kernel, module: Module | None) -> tuple[str, ...]:
    """Notes on a module that was compiled here: by another compiler than its kernel, or with warnings."""
    if module is None or module.sources is None:
        return ()
    notes = () if kernel.compiler_note is None else (kernel.compiler_note,)
    return (*notes, warning_note(module.name, module.warnings)) if module.warnings else notes


def parameters_note(given: Mapping[str, str]) -> tuple[str, ...]:
    """The note of a user's module that is loaded with parameters."""
    return (f"loaded with {written(given)}",) if given else ()
