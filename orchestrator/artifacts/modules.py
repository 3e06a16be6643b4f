# SPDX-License-Identifier: GPL-2.0-only
"""Kernel modules, built against a kernel's headers and cached by content."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.diagnostics import (
    error_hint,
    error_lines,
    error_place,
    keep_warnings,
    kept_output,
    located,
    shown_warnings,
)
from orchestrator.artifacts.kbuild import (
    Places,
    check_tree,
    make_modules,
    plain_places,
    scratch_folder,
    strip_module,
    tree_notes,
)
from orchestrator.artifacts.kernel_source import sound_source
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import ModuleSource, Scalar
from orchestrator.errors import BuildError
from orchestrator.steps import step

_SHOWN_LINES = 60
_RECIPE = "warnings kept"
"""Part of every key: modules from before were built without a record of their warnings."""


@dataclass(frozen=True)
class Module:
    """A built module.

    ``sources`` is the folder of its sources, with ``warnings.txt`` where it has warnings; None where the user has built
    it. ``warnings`` are the compiler's lines, with the places in the files that the module comes from. ``parameters``
    are what it is loaded with: cells share a module and load it with their own.
    """

    name: str
    file: Path
    key: str
    sources: Path | None
    warnings: tuple[str, ...] = ()
    parameters: Mapping[str, Scalar] = field(default_factory=dict, hash=False)


def build_modules(context: BuildContext, kernel: Kernel, sources: Sequence[ModuleSource]) -> list[Module | BuildError]:
    """Return the modules built for ``kernel``, in the order given; those not in the cache are built in parallel.

    Their warnings are shown, those of a module from the cache too. A module that does not build is a BuildError in its
    place, with the file, the line and the compiler's output. Raises UnusableTreeError where a user's kernel can have
    none.
    """
    modules = _built_or_cached(context, kernel, sources)
    show_warnings(context, kernel, [module for module in modules if isinstance(module, Module)])
    return modules


def _built_or_cached(
    context: BuildContext, kernel: Kernel, sources: Sequence[ModuleSource]
) -> list[Module | BuildError]:
    if all(context.cache.get("modules", _inputs(kernel, source)) for source in sources):
        return [_build(context, kernel, source, Places.of(kernel)) for source in sources]
    if kernel.spec.source is not None:
        sound_source(context, kernel.spec.source, kernel.spec.patches, kernel.spec.files)
    check_tree(context, kernel)
    context.say(f"building {', '.join(dict.fromkeys(source.name for source in sources))} for {kernel.spec.name}")
    with (
        plain_places(kernel) as places,
        ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0))), thread_name_prefix="build") as pool,
    ):
        return list(pool.map(lambda source: _try_to_build(context, kernel, source, places), sources))


def show_warnings(context: BuildContext, kernel: Kernel, modules: Sequence[Module]) -> None:
    """Show each text of warnings once: cells share modules."""
    for name, lines in dict.fromkeys((module.name, module.warnings) for module in modules if module.warnings):
        heading = f"module {name} for {kernel.spec.name} builds with warnings:"
        for line in (heading, *lines):
            with step(line):
                pass
        more = [f"... and {len(lines) - _SHOWN_LINES} lines more"] if len(lines) > _SHOWN_LINES else []
        context.warn("\n".join([heading, *lines[:_SHOWN_LINES], *more]))


def _try_to_build(context: BuildContext, kernel: Kernel, source: ModuleSource, places: Places) -> Module | BuildError:
    try:
        return _build(context, kernel, source, places)
    except BuildError as error:
        return error


def _build(context: BuildContext, kernel: Kernel, source: ModuleSource, places: Places) -> Module:
    def build(folder: Path) -> None:
        with scratch_folder() as scratch:
            here = source.write(scratch)
            finished = make_modules(kernel, places, here)
            if finished.status != 0:
                raise _build_error(context, kernel, source, here, finished.stdout + finished.stderr)
            strip_module(kernel, here / f"{source.name}.ko")
            shutil.copy(here / f"{source.name}.ko", folder / f"{source.name}.ko")
            (folder / "sources").mkdir()
            keep_warnings(folder / "sources", finished.stderr, here)
            source.write(folder / "sources")

    label = f"{source.name} for {kernel.spec.name}"
    artifact = context.cache.obtain("modules", _inputs(kernel, source), label, build)
    warnings = shown_warnings(artifact.path / "sources", source.origins)
    return Module(source.name, artifact.path / f"{source.name}.ko", artifact.key, artifact.path / "sources", warnings)


def _inputs(kernel: Kernel, source: ModuleSource) -> dict[str, object]:
    return {
        "kernel": kernel.key,
        "compiler": kernel.toolchain.version,
        "name": source.name,
        "files": dict(source.files),
        "recipe": _RECIPE,
    }


def _build_error(context: BuildContext, kernel: Kernel, source: ModuleSource, scratch: Path, output: str) -> BuildError:
    """Keep the sources that do not compile, and name the user's own files in the compiler's messages."""
    folder = context.cache.root / "failed-builds" / f"{source.name}-{digest(dict(source.files))}"
    place = source.write(folder)
    origins = {name: place / name for name in source.files} | dict(source.origins)
    kept = kept_output(output, scratch)
    main = source.origins.get(f"{source.name}_main.c", place)
    hints = [error_hint(kept, main.parent, source.files), *tree_notes(kernel)]
    if not source.origins or any(origin.suffix == ".j2" for origin in source.origins.values()):
        hints.append(f"the rendered sources are in {folder}")
    return BuildError(
        f"module {source.name} does not build",
        where=error_place(kept, origins) or str(main),
        detail=error_lines("\n".join(located(kept, origins))),
        hint="; ".join(filter(None, hints)),
    )
