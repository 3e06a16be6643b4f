# SPDX-License-Identifier: GPL-2.0-only
"""A kernel module of the user's, in whatever form it comes: a template, a C file, a folder, or built already."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_folder import folder_modules
from orchestrator.artifacts.module_source import TEMPLATE, Value, render_as
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.prebuilt import prebuilt
from orchestrator.catalog.similar_file import similar_file
from orchestrator.catalog.spelling import unknown
from orchestrator.catalog.user_module import modinfo
from orchestrator.catalog.user_probe import SUFFIXES, find_module
from orchestrator.errors import BuildError, ConfigError, UsageError

_LONGEST = 55
"""Characters of a module's name: MODULE_NAME_LEN is 56 with the terminating zero on 64-bit kernels."""

_NAME = re.compile(rf"[a-z_][a-z0-9_]{{0,{_LONGEST - 1}}}", re.IGNORECASE)
"""What the kernel's build system takes."""

_NO_VALUES: Mapping[str, Value] = MappingProxyType({})


def user_modules(
    context: BuildContext,
    kernel: Kernel,
    path: Path,
    *,
    name: str | None = None,
    values: Mapping[str, Value] = _NO_VALUES,
) -> tuple[Module, ...]:
    """The module at ``path``, built for ``kernel``: what is to be loaded, in this order, the module itself last.

    ``NAME.c.j2``, rendered with ``values``, and ``NAME.c`` make a module NAME. They may include files beside them and
    the lab's own headers. A ``NAME.ko`` is taken as it is. A folder is built by its Kbuild or Makefile, with ``values``
    as variables for make; where it makes several modules, ``name`` says which one is meant, and those of them that it
    depends on are loaded before it.

    Raises ConfigError for a path that is none of these, UsageError for a wrong name or value, BuildError with the
    place, UnsupportedError for a .ko of another kernel.
    """
    if path.is_dir():
        return _of_folder(context, kernel, path, name, values)
    if not path.exists() and not path.name.endswith(SUFFIXES):
        raise ConfigError(f"found {str(path)!r}; there is no such file or folder", hint=similar_file(path, ("",)))
    file = find_module(str(path))
    if values and not takes_values(path):
        hint = "values are for templates (.c.j2) and folders, and are no parameters"
        raise UsageError(f"{file.name} takes no value {', '.join(values)}", hint=hint)
    if file.suffix == ".ko":
        return (_named(prebuilt(file, kernel), name),)
    stem = file.name.removesuffix(TEMPLATE).removesuffix(".c").replace("-", "_")
    if not _NAME.fullmatch(stem):
        hint = f"rename it: at most {_LONGEST} letters, digits, '_' and '-', and no digit first"
        raise UsageError(f"{file.name}: {stem!r} is no name of a module", hint=hint)
    source = render_as(stem, file, values)
    if not source.files[f"{stem}_main.c"].strip():
        raise ConfigError('is empty: a module has at least MODULE_LICENSE("GPL");', where=str(file))
    (built,) = build_modules(context, kernel, [source])
    if isinstance(built, BuildError):
        raise built
    return (_named(built, name),)


def takes_values(path: Path) -> bool:
    """Whether a module is built with values: from a template, or by a folder's make."""
    return path.is_dir() or path.name.endswith(TEMPLATE)


def _of_folder(
    context: BuildContext, kernel: Kernel, folder: Path, name: str | None, values: Mapping[str, Value]
) -> tuple[Module, ...]:
    lists = [key for key, value in values.items() if isinstance(value, tuple)]
    if lists:
        raise UsageError(f"{lists[0]}: a variable for make is text or a number, not a list")
    variables = {key: value for key, value in values.items() if not isinstance(value, tuple)}
    modules = folder_modules(context, kernel, folder, variables)
    if name is None and len(modules) > 1:
        hint = f"name the one to load; what it depends on is loaded too: {folder}:{next(iter(modules))}"
        raise UsageError(f"{folder} makes {len(modules)} modules: {', '.join(modules)}", hint=hint)
    wanted = next(iter(modules)) if name is None else name.replace("-", "_")  # as the kernel lists it
    if wanted not in modules:
        raise UsageError(unknown("module", wanted, modules), where=str(folder))
    ordered: dict[str, Module] = {}
    _add(wanted, modules, ordered)
    return tuple(ordered.values())


def _add(name: str, modules: Mapping[str, Module], ordered: dict[str, Module]) -> None:
    """Add a module behind those that it depends on. modpost refuses modules that need each other."""
    for needed in modinfo(modules[name].file).get("depends", "").split(","):
        if needed in modules and needed not in ordered:
            _add(needed, modules, ordered)
    ordered[name] = modules[name]


def _named(module: Module, name: str | None) -> Module:
    if name is not None and name.replace("-", "_") != module.name:
        raise UsageError(f"{module.file.name} is module {module.name}, not {name}")
    return module
