# SPDX-License-Identifier: GPL-2.0-only
"""Kernel modules of the user's: a template, a C file, a folder, or built already; and their parameters."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.cache import BuildContext, digest
from orchestrator.artifacts.diagnostics import build_error, error_hint, keep_warnings, kept_output, shown_warnings
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import TEMPLATE, Value, render_as, source_name
from orchestrator.artifacts.modules import (
    Module,
    build_modules,
    check_tree,
    make_modules,
    plain_places,
    scratch_folder,
    show_warnings,
    strip_module,
    tree_notes,
)
from orchestrator.artifacts.sources import read_sources
from orchestrator.catalog.data import similar_file, unknown
from orchestrator.catalog.probes import SUFFIXES, find_module
from orchestrator.catalog.user_files import DAMAGED, header, modinfo, named_modinfo
from orchestrator.errors import BuildError, ConfigError, UnsupportedError, UsageError
from orchestrator.files import sha256_of
from orchestrator.program import PROGRAM

# A user's folder of module sources with a Kbuild or a Makefile, built as the kernel's build system would.

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
        objects = " ".join(f"{name.removesuffix('.c')}.o" for name in sorted(sources) if name.endswith(".c"))
        what = "has neither a Kbuild nor a Makefile"
        hint = f"one line makes a module of each file: echo 'obj-m := {objects}' >{shlex.quote(str(folder / 'Kbuild'))}"
        if not objects:
            what, hint = f"{what}, nor a C file", "name the folder that has the module's .c files, with a Kbuild"
        raise ConfigError(what, where=str(folder), hint=hint)
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
                kept = kept_output(finished.stdout + finished.stderr, scratch)
                hints = [error_hint(kept, folder, files), *tree_notes(kernel)]
                raise build_error(f"folder {folder.name} does not build", kept, files, folder, hints)
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


def _write(sources: Mapping[str, bytes], folder: Path, target: Path) -> None:
    for name, content in sources.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
        shutil.copymode(folder / name, target / name)  # a program that make calls


def _assignments(variables: Mapping[str, str | int]) -> list[str]:
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name) or not _VALUE.fullmatch(str(value)):
            hint = "letters, digits and '_' in its name; letters, digits, spaces and _./+=- in its value"
            raise UsageError(f"found {name}={str(value)!r}; that is no variable for make", hint=hint)
        if _OURS.fullmatch(name):
            hint = "leave it out: a module is built by the kernel's own compiler, in a folder of the lab's"
            raise UsageError(f"found {name}={str(value)!r}; the lab gives make this variable itself", hint=hint)
    return [f"{name}={value}" for name, value in sorted(variables.items())]


# A module that the user has built: its name, and whether a kernel would load it.

_MACHINES = {"EM_386": "i386", "EM_X86_64": "x86_64", "EM_AARCH64": "arm64", "EM_ARM": "arm", "EM_RISCV": "riscv"}


def prebuilt(file: Path, kernel: Kernel) -> Module:
    """The module in a .ko file. Raises UnsupportedError for one of another kernel, ConfigError for no module."""
    info = named_modinfo(file)
    machine = _MACHINES.get(header(file, "e_machine"), "another processor")
    if machine != kernel.spec.arch:
        hint = f"name one that was built for {kernel.spec.arch}, or a kernel for {machine}"
        raise UnsupportedError(f"{file.name} is for {machine}, and this kernel is for {kernel.spec.arch}", hint=hint)
    built_for = info.get("vermagic", "").split(" ")[0]
    if built_for != kernel.release:
        source = f"./{source_name(file)}"
        raise UnsupportedError(
            f"{file.name} was built for kernel {built_for[:80] or 'unknown'}, and this one is {kernel.release}",
            hint=f"give its source, {source}, and the lab builds it for this kernel; "
            f"or build it first: {PROGRAM} build module {source} --kernel {kernel.spec.argument} --out .",
        )
    return Module(info["name"], file, sha256_of(file), None)


# A kernel module of the user's, in whatever form it comes: a template, a C file, a folder, or built already.

_LONGEST = 55
"""Characters of a module's name: MODULE_NAME_LEN is 56 with the terminating zero on 64-bit kernels."""

_MODULE_NAME = re.compile(rf"[a-z_][a-z0-9_]{{0,{_LONGEST - 1}}}", re.IGNORECASE)
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
    if not _MODULE_NAME.fullmatch(stem):
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


# The parameters that a built module has.

_PARAMETER_SYMBOL = "__param_str_"
"""Begins the symbol of a parameter's name (__module_param_call() of include/linux/moduleparam.h)."""

_KERNELS_OWN = frozenset({"async_probe", "dyndbg"})
"""Parameters that the kernel takes for every module (unknown_module_param_cb() of kernel/module/main.c)."""


def check_parameter_names(module: Module, given: Iterable[str]) -> None:
    """Raise UsageError for a parameter that the module has not got: the kernel ignores it, with a line in its log.

    Not where the module's own symbols are stripped; then its parameters are not known. Raises ConfigError for a file
    that is no module.
    """
    names = [name for name in given if name not in _KERNELS_OWN]
    allowed = _parameter_names(module.file) if names else None
    if allowed is None:
        return
    for name in names:
        if name not in allowed:
            if not allowed:
                raise UsageError(f"module {module.name} has no parameter '{name}': it has no parameters at all")
            raise UsageError(f"module {module.name}: {unknown('parameter', name, allowed)}")


def _parameter_names(file: Path) -> list[str] | None:
    """The names; None where the file does not tell them."""
    try:
        with file.open("rb") as stream:
            elf = ELFFile(stream)
            if elf.get_section_by_name("__param") is None:
                return []
            table = elf.get_section_by_name(".symtab")
            symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
            names = [symbol.name for symbol in symbols]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(file)) from None
    except DAMAGED:
        raise ConfigError("is no kernel module", where=str(file)) from None
    return sorted(name.removeprefix(_PARAMETER_SYMBOL) for name in names if name.startswith(_PARAMETER_SYMBOL)) or None
