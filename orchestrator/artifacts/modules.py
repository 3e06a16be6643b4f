# SPDX-License-Identifier: GPL-2.0-only
"""Kernel modules: the lab's and users', built by the kernel's build system and cached by content."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.arch import OF_MACHINE
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.diagnostics import (
    Origins,
    build_error,
    error_hint,
    keep_warnings,
    kept_output,
    shown_warnings,
)
from orchestrator.artifacts.kbuild import Kbuild, check_buildable, kbuild_of, make_modules, scratch_folder
from orchestrator.artifacts.kernel_build import strip_debug
from orchestrator.artifacts.module_files import in_order
from orchestrator.artifacts.module_source import OWN, TEMPLATE, ModuleSource, Scalar, Value, render_as
from orchestrator.artifacts.outside_files import changed_outside, keep_outside, outside_hint, unlisted_hint
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.sources import read_sources
from orchestrator.catalog.data import unknown
from orchestrator.catalog.probes import find_module
from orchestrator.catalog.user_files import DAMAGED, header, modinfo, named_modinfo
from orchestrator.errors import BuildError, ConfigError, UnsupportedError, UsageError
from orchestrator.files import sha256_of
from orchestrator.program import PROGRAM
from orchestrator.steps import step

_SHOWN_LINES = 60


@dataclass(frozen=True)
class Module:
    """A built module, the folder of its ``sources`` (None for a user's .ko), and the compiler's ``warnings``.

    ``parameters`` are its load parameters: cells share a module, and load it with different ones. ``needed`` are the
    modules of the same folder that are loaded before it, in order.
    """

    name: str
    file: Path
    key: str
    sources: Path | None
    warnings: tuple[str, ...] = ()
    parameters: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    needed: tuple[Module, ...] = ()


def build_modules(context: BuildContext, kernel: Kernel, sources: Sequence[ModuleSource]) -> list[Module | BuildError]:
    """Build modules in order; a failed one becomes its BuildError. Raises UnusableTreeError."""
    if not sources:
        return []
    kbuild = kbuild_of(kernel)

    def build(source: ModuleSource) -> Module | BuildError:
        try:
            return _build(context, kbuild, source)
        except BuildError as error:
            return error

    if not all(context.cache.get("modules", _inputs(kbuild, source)) for source in sources):
        check_buildable(context, kernel)
        context.say(f"building {', '.join(dict.fromkeys(source.name for source in sources))} for {kbuild.name}")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="build") as pool:
        modules = list(pool.map(build, sources))
    _show_warnings(context, kbuild, [module for module in modules if isinstance(module, Module)])
    return modules


def _show_warnings(context: BuildContext, kbuild: Kbuild, modules: Sequence[Module]) -> None:
    """Show each text of warnings once: cells share modules."""
    for name, lines in dict.fromkeys((module.name, module.warnings) for module in modules if module.warnings):
        heading = f"module {name} for {kbuild.name} builds with warnings:"
        for line in (heading, *lines):
            with step(line):
                pass
        more = [f"... and {len(lines) - _SHOWN_LINES} lines more"] if len(lines) > _SHOWN_LINES else []
        context.warn("\n".join([heading, *lines[:_SHOWN_LINES], *more]))


def _build(context: BuildContext, kbuild: Kbuild, source: ModuleSource) -> Module:
    def build(folder: Path) -> None:
        with scratch_folder() as scratch:
            here = source.write(scratch)
            missing = _take_objects(context, kbuild, source, here)
            mapped = f"-ffile-prefix-map={here}/= "  # keeps the folder's name out of messages
            flags = [f"KCFLAGS={mapped}{kbuild.debug_flag}", f"KAFLAGS={mapped}-g0"]
            finished = make_modules(context, kbuild, here, flags)
            if finished.status != 0:
                raise _build_error(context, kbuild, source, here, finished.stdout + finished.stderr)
            strip_debug(kbuild.toolchain, here / f"{source.name}.ko")
            shutil.copy(here / f"{source.name}.ko", folder / f"{source.name}.ko")
            (folder / "sources").mkdir()
            keep_warnings(folder / "sources", finished.stderr, here)
            if not shown_warnings(folder / "sources", Origins({})):  # an object with warnings is not shared
                for name, inputs in missing.items():
                    keep, title = partial(shutil.copy, here / f"{name}.o"), f"{name}.o for {kbuild.name}"
                    context.cache.obtain_file("module-objects", inputs, title, f"{name}.o", keep)
            source.write(folder / "sources")

    label = f"{source.name} for {kbuild.name}"
    artifact = context.cache.obtain("modules", _inputs(kbuild, source), label, build)
    warnings = shown_warnings(artifact.path / "sources", source.places)
    return Module(source.name, artifact.path / f"{source.name}.ko", artifact.key, artifact.path / "sources", warnings)


def _take_objects(
    context: BuildContext, kbuild: Kbuild, source: ModuleSource, here: Path
) -> dict[str, dict[str, object]]:
    """Copy in objects that other modules made of the same texts; return those still to be compiled.

    Modules share nine of ten files, and each takes a third of a second to compile: sharing makes a module take 1.3
    seconds of one CPU instead of 4.2.
    """
    missing, rules = {}, ""
    for name, texts in source.parts().items():
        inputs: dict[str, object] = {
            **kbuild.inputs,
            "object": name,
            "texts": digest(texts),
        }
        artifact = context.cache.get("module-objects", inputs)
        if artifact is None:
            missing[name] = inputs
            continue
        next(here.glob(f"{name}.[cS]")).unlink()
        shutil.copy(artifact.path / f"{name}.o", here / f"{name}.shared")
        (here / f".{name}.o.cmd").touch()  # modpost reads it
        rules += f"$(obj)/{name}.o: $(src)/{name}.shared\n\tcp $< $@\n"
    with (here / "Kbuild").open("a") as file:  # Kbuild's own rule (.o_shipped) matches no object since Linux 6.13
        file.write(rules)
    return missing


def _inputs(kbuild: Kbuild, source: ModuleSource) -> dict[str, object]:
    return {
        **kbuild.inputs,
        "name": source.name,
        "files": dict(source.files),
        "recipe": "warnings kept",  # earlier modules have no record of their warnings
    }


def _build_error(context: BuildContext, kbuild: Kbuild, source: ModuleSource, scratch: Path, output: str) -> BuildError:
    folder = context.cache.root / "failed-builds" / f"{source.name}-{digest(dict(source.files))}"
    place = source.write(folder)
    places = source.places
    origins = Origins({**{name: place / name for name in source.files}, **places.files}, places.rendered)
    kept = kept_output(output, scratch)
    main = source.origins.get(f"{source.name}_main.c", place)
    hints = [error_hint(kept, main.parent, source.files), *kbuild.notes]
    if not source.origins or any(origin.suffix == ".j2" for origin in source.origins.values()):
        hints.append(f"the rendered sources are in {folder}")
    return build_error(f"module {source.name} does not build", kept, origins, main, hints)


_OF_COMPILERS = (Path("/usr/lib/gcc"), Path("/usr/lib/llvm"))
_VALUE = re.compile(r"[A-Za-z0-9_./ +=-]{0,200}")  # a make variable's, without anything that make or a shell expands


def folder_modules(
    context: BuildContext, kernel: Kernel, folder: Path, variables: Mapping[str, Value]
) -> Mapping[str, Module]:
    """Every module that a folder's make builds. Raises ConfigError, UsageError, BuildError, UnusableTreeError."""
    sources, kbuild = read_sources(find_module(str(folder))), kbuild_of(kernel)
    assignments = _assignments(variables)
    content = {name: hashlib.sha256(text).hexdigest() for name, text in sources.items()}
    files = {name: folder / name for name in sources}
    inputs: dict[str, object] = {
        **kbuild.inputs,
        "files": content,
        "make": assignments,
        "recipe": "sources kept, outside files noted",  # earlier folders have less
    }

    def build(place: Path) -> None:
        check_buildable(context, kernel)
        context.say(f"building {folder.name} for {kbuild.name}")
        with scratch_folder() as scratch:
            _write(sources, folder, scratch)
            finished = make_modules(context, kbuild, scratch, assignments)
            if finished.status != 0:
                kept = kept_output(finished.stdout + finished.stderr, scratch)
                of_files = outside_hint(kept, folder, sources) or unlisted_hint(kept, sources)
                hints = [of_files or error_hint(kept, folder, files), *kbuild.notes]
                raise build_error(f"folder {folder.name} does not build", kept, Origins(files), folder, hints)
            for file in sorted(scratch.rglob("*.ko")):
                strip_debug(kbuild.toolchain, file)
                shutil.copy(file, place)
            _write(sources, folder, place / "sources")
            keep_warnings(place / "sources", finished.stderr, scratch)
            keep_outside(place, scratch, (kbuild.headers, kbuild.makefile.parent, *_OF_COMPILERS))

    label = f"{folder.name} for {kbuild.name}"
    artifact = context.cache.obtain("module-folders", inputs, label, build)
    changed = changed_outside(artifact.path)
    while changed and inputs.get("outside") != changed:
        inputs["outside"] = changed
        artifact = context.cache.obtain("module-folders", inputs, label, build)
        changed = changed_outside(artifact.path)
    kept, modules = artifact.path / "sources", {}
    warnings = shown_warnings(kept, Origins(files))
    for file in sorted(artifact.path.glob("*.ko")):
        name = modinfo(file).get("name", file.stem)
        modules[name] = Module(name, file, f"{artifact.key}-{digest(file.name)}", kept, warnings)
    if not modules:
        hint = "its obj-m is empty: set the variables it depends on (--set NAME=m), or write obj-m := NAME.o"
        raise ConfigError("builds no module", where=str(folder), hint=hint)
    _show_warnings(context, kbuild, list(modules.values())[:1])
    return modules


def _write(sources: Mapping[str, bytes], folder: Path, target: Path) -> None:
    for name, content in sources.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
        shutil.copymode(folder / name, target / name)  # make may call it as a program


def _assignments(variables: Mapping[str, Value]) -> list[str]:
    for name, value in variables.items():
        if isinstance(value, tuple):
            raise UsageError(f"{name}: a variable for make is text or a number, not a list")
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) or not _VALUE.fullmatch(str(value)):
            hint = "letters, digits and '_' in its name; letters, digits, spaces and _./+=- in its value"
            raise UsageError(f"found {name}={str(value)!r}; that is not a variable for make", hint=hint)
        # These say what is built, where and by what; a second value would replace the lab's.
        if re.fullmatch(r"M|MO|O|ARCH|CC|CROSS_COMPILE|KBUILD_.*", name):
            hint = "leave it out: a module is built by the kernel's own compiler, in a folder of the lab's"
            raise UsageError(f"found {name}={str(value)!r}; the lab gives make this variable itself", hint=hint)
    return [f"{name}={value}" for name, value in sorted(variables.items())]


_MACHINES = {**OF_MACHINE, "EM_AARCH64": "arm64", "EM_ARM": "arm", "EM_RISCV": "riscv"}


def prebuilt(file: Path, kernel: Kernel) -> Module:
    """The module in a .ko file. Raises UnsupportedError if built for another kernel, ConfigError if not a module."""
    info = named_modinfo(file)
    machine = _MACHINES.get(header(file, "e_machine"), "another processor")
    if machine != kernel.spec.arch:
        hint = f"name one that was built for {kernel.spec.arch}, or a kernel for {machine}"
        raise UnsupportedError(f"{file.name} is for {machine}, and this kernel is for {kernel.spec.arch}", hint=hint)
    built_for = info.get("vermagic", "").split(" ")[0]
    if built_for != kernel.release:
        source = f"./{file.stem.removeprefix(OWN)}.c"
        raise UnsupportedError(
            f"{file.name} was built for kernel {built_for[:80] or 'unknown'}, and this one is {kernel.release}",
            hint=f"give its source, {source}, and the lab builds it for this kernel; "
            f"or build it first: {PROGRAM} build module {source} --kernel {kernel.spec.argument} --out .",
        )
    return Module(info["name"], file, sha256_of(file), None)


_LONGEST = 55  # characters of a module's name; MODULE_NAME_LEN is 56 with the terminating zero on 64-bit kernels

_MODULE_NAME = re.compile(rf"[a-z_][a-z0-9_]{{0,{_LONGEST - 1}}}", re.IGNORECASE)
"""The names that the kernel's build system accepts."""

_NO_VALUES: Mapping[str, Value] = MappingProxyType({})


def user_modules(
    context: BuildContext,
    kernel: Kernel,
    path: Path,
    *,
    name: str | None = None,
    values: Mapping[str, Value] = _NO_VALUES,
) -> tuple[Module, ...]:
    """The module at ``path``, built for ``kernel``: the modules to load, in order, the module itself last.

    ``path`` is ``NAME.c.j2``, rendered with ``values``; ``NAME.c``; ``NAME.ko``; or a folder with a Kbuild or Makefile,
    built with ``values`` as make variables, in which ``name`` selects one of several modules.
    Raises ConfigError, UsageError for a wrong name or value, BuildError, UnsupportedError for another kernel's .ko.
    """
    if path.is_dir():
        return with_needed(folder_modules(context, kernel, path, values), path, name)
    file = find_module(str(path))
    if values and not takes_values(path):
        hint = "values are for templates (.c.j2) and folders; they are not parameters"
        raise UsageError(f"{file.name} takes no value {', '.join(values)}", hint=hint)
    if file.suffix == ".ko":
        return (_named(prebuilt(file, kernel), name),)
    stem = file.name.removesuffix(TEMPLATE).removesuffix(".c").replace("-", "_")
    if not _MODULE_NAME.fullmatch(stem):
        hint = f"rename it: at most {_LONGEST} letters, digits, '_' and '-', and no digit first"
        raise UsageError(f"{file.name}: {stem!r} is not a module name", hint=hint)
    source = render_as(stem, file, values)
    if not source.files[f"{stem}_main.c"].strip():
        raise ConfigError('is empty: a module has at least MODULE_LICENSE("GPL");', where=str(file))
    (built,) = build_modules(context, kernel, [source])
    if isinstance(built, BuildError):
        raise built
    return (_named(built, name),)


def takes_values(path: Path) -> bool:
    """Whether a module's build takes values: a template's, or a folder's make."""
    return path.is_dir() or path.name.endswith(TEMPLATE)


def with_needed(
    modules: Mapping[str, Module], folder: Path, name: str | None, parameters: Iterable[str] = ()
) -> tuple[Module, ...]:
    """One of a folder's modules by its ``name``, or the only one that has the ``parameters``, after those it needs.

    Raises UsageError.
    """
    fitting = list(modules)
    if name is None and len(modules) > 1 and (given := set(parameters)):
        fitting = [
            candidate for candidate, module in modules.items() if given <= set(parameter_names(module.file) or ())
        ]
    if name is None and len(fitting) != 1:
        hint = f"name the one to load; what it depends on is loaded too: {folder}:{next(iter(modules))}"
        raise UsageError(f"{folder} builds {len(modules)} modules: {', '.join(modules)}", hint=hint)
    main = fitting[0] if name is None else name.replace("-", "_")  # as the kernel lists it
    if main not in modules:
        raise UsageError(unknown("module", main, modules), where=str(folder))
    return tuple(modules[needed] for needed in in_order((module.file for module in modules.values()), [main]))


def _named(module: Module, name: str | None) -> Module:
    if name is not None and name.replace("-", "_") != module.name:
        raise UsageError(f"{module.file.name} is module {module.name}, not {name}")
    return module


_PARAMETER_SYMBOL = "__param_str_"
"""Prefix of the symbol of a parameter's name (__module_param_call() of include/linux/moduleparam.h)."""

_KERNELS_OWN = frozenset({"async_probe", "dyndbg"})
"""Parameters that the kernel takes for every module (unknown_module_param_cb() of kernel/module/main.c)."""


def check_parameter_names(module: Module, given: Iterable[str]) -> None:
    """Raise UsageError for a parameter that the module lacks, if its parameters are known. Raises ConfigError."""
    names = [name for name in given if name not in _KERNELS_OWN]
    allowed = parameter_names(module.file) if names else None
    if allowed is None:
        return
    for name in names:
        if name not in allowed:
            if not allowed:
                raise UsageError(f"module {module.name} has no parameter '{name}': it has no parameters at all")
            raise UsageError(f"module {module.name}: {unknown('parameter', name, allowed)}")


def parameter_names(file: Path) -> list[str] | None:
    """A module's parameters; None if its file does not tell. Raises ConfigError."""
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
        raise ConfigError("is not a kernel module", where=str(file)) from None
    return sorted(name.removeprefix(_PARAMETER_SYMBOL) for name in names if name.startswith(_PARAMETER_SYMBOL)) or None
