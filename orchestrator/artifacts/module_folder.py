# SPDX-License-Identifier: GPL-2.0-only
"""A user's folder of module sources with a Kbuild or a Makefile, built as the kernel's build system would."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from collections.abc import Mapping
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
    check_tree,
    make_modules,
    plain_places,
    scratch_folder,
    strip_module,
    tree_notes,
)
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module, show_warnings
from orchestrator.artifacts.source_folder import read_sources
from orchestrator.catalog.user_module import modinfo
from orchestrator.errors import BuildError, ConfigError, UsageError

_KIND = "module-folders"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_VALUE = re.compile(r"[A-Za-z0-9_./ +=-]{0,200}")
"""Of a variable for make: nothing that make or a shell expands."""

_OURS = re.compile(r"M|MO|O|ARCH|CC|CROSS_COMPILE|KBUILD_.*")
"""Variables that say what is built, where and by what; a second value would replace the lab's."""


def folder_modules(
    context: BuildContext, kernel: Kernel, folder: Path, variables: Mapping[str, str | int]
) -> Mapping[str, Module]:
    """Every module that a folder makes, by its name in the kernel; built where the cache has not got them.

    ``variables`` are given to make. Make runs what the folder's Kbuild says, with the rights of the user.
    Raises ConfigError for a folder that makes no module, UsageError for a wrong variable, BuildError, and
    UnusableTreeError where a user's kernel can have none.
    """
    sources = read_sources(folder)
    if not {"Kbuild", "Makefile"} & sources.keys():
        raise _no_makefile(folder, sources)
    assignments = _assignments(variables)
    content = {name: hashlib.sha256(text).hexdigest() for name, text in sources.items()}
    files = {name: folder / name for name in sources}
    inputs = {"kernel": kernel.key, "compiler": kernel.toolchain.version, "files": content, "make": assignments}

    def build(place: Path) -> None:
        check_tree(context, kernel)
        context.say(f"building {folder.name} for {kernel.spec.name}")
        with scratch_folder() as scratch, plain_places(kernel) as places:
            _write(sources, folder, scratch)
            finished = make_modules(kernel, places, scratch, assignments)
            if finished.status != 0:
                raise _build_error(kernel, files, kept_output(finished.stdout + finished.stderr, scratch), folder)
            for file in sorted(scratch.rglob("*.ko")):
                strip_module(kernel, file)
                shutil.copy(file, place)
            keep_warnings(place, finished.stderr, scratch)

    artifact = context.cache.obtain(_KIND, inputs, f"{folder.name} for {kernel.spec.name}", build)
    warnings = shown_warnings(artifact.path, files)
    modules = {}
    for file in sorted(artifact.path.glob("*.ko")):
        name = modinfo(file).get("name", file.stem)
        modules[name] = Module(name, file, f"{artifact.key}-{digest(file.name)}", None, warnings)
    if not modules:
        hint = "its obj-m is empty: set the variables it depends on (--set NAME=m), or write obj-m := NAME.o"
        raise ConfigError("makes no module", where=str(folder), hint=hint)
    show_warnings(context, kernel, list(modules.values())[:1])
    return modules


def _assignments(variables: Mapping[str, str | int]) -> list[str]:
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name) or not _VALUE.fullmatch(str(value)):
            hint = "letters, digits and '_' in its name; letters, digits, spaces and _./+=- in its value"
            raise UsageError(f"found {name}={str(value)!r}; that is no variable for make", hint=hint)
        if _OURS.fullmatch(name):
            hint = "leave it out: a module is built by the kernel's own compiler, in a folder of the lab's"
            raise UsageError(f"found {name}={str(value)!r}; the lab gives make this variable itself", hint=hint)
    return [f"{name}={value}" for name, value in sorted(variables.items())]


def _no_makefile(folder: Path, sources: Mapping[str, bytes]) -> ConfigError:
    objects = " ".join(f"{name.removesuffix('.c')}.o" for name in sorted(sources) if name.endswith(".c"))
    if not objects:
        hint = "name the folder that has the module's .c files, with a Kbuild"
        return ConfigError("has neither a Kbuild nor a Makefile, nor a C file", where=str(folder), hint=hint)
    hint = f"one line makes a module of each file: echo 'obj-m := {objects}' >{shlex.quote(str(folder / 'Kbuild'))}"
    return ConfigError("has neither a Kbuild nor a Makefile", where=str(folder), hint=hint)


def _write(sources: Mapping[str, bytes], folder: Path, target: Path) -> None:
    for name, content in sources.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
        shutil.copymode(folder / name, target / name)  # a program that make calls


def _build_error(kernel: Kernel, files: Mapping[str, Path], kept: str, folder: Path) -> BuildError:
    return BuildError(
        f"folder {folder.name} does not build",
        where=error_place(kept, files) or str(folder),
        detail=error_lines("\n".join(located(kept, files))),
        hint="; ".join(filter(None, [error_hint(kept, folder, files), *tree_notes(kernel)])),
    )
