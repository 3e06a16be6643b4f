# SPDX-License-Identifier: GPL-2.0-only
"""Kernel modules, built against a kernel's headers and cached by content."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import jinja2
from jinja2.sandbox import SandboxedEnvironment

from orchestrator.artifacts.cache import BuildContext, digest
from orchestrator.artifacts.compiler import compiler_in, compiling_in, llvm_programs
from orchestrator.artifacts.diagnostics import build_error, error_hint, keep_warnings, kept_output, shown_warnings
from orchestrator.artifacts.kernel_build import sound_source, strip_debug
from orchestrator.artifacts.kernels import Kernel, UnusableTreeError
from orchestrator.artifacts.sources import included_as, read_c_source
from orchestrator.catalog.data import unknown
from orchestrator.errors import BuildError, ConfigError, UnsupportedError, UsageError
from orchestrator.files import ScratchFolder
from orchestrator.paths import data_dir, kbuild_takes
from orchestrator.process import Finished, run
from orchestrator.steps import step

# The sources of a module: its rendered template and the files that this includes.

TEMPLATE = ".c.j2"

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,127}")
_LARGEST = 1 << 31
_LONGEST = 1024
_LONGEST_NAME = 40
"""Of a user's module: MODULE_NAME_LEN is 56 with the terminating zero on 64-bit kernels."""

_SYNTAX = (
    "{{ VALUE }} is replaced, {% if VALUE %}...{% endif %} chooses; "
    "C that has such braces stands between {% raw %} and {% endraw %}"
)

_OWN = "own_"
"""How the names of users' modules begin, which none of the kernel's has."""

_MARKERS = "marker.h"
_FORMAT_ERRORS = "-Werror=format -Werror=format-extra-args"
"""A probe reads a marker's arguments as its format says: one that does not fit makes it read what was not passed."""

_OWN_FOLDER = "-I$(src)"
"""What the kernel's headers include of a module is found there, such as the header of its tracepoints."""

Scalar = str | int
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True)
class ModuleSource:
    """A module's files by their paths in its folder, with its Kbuild. ``name`` is what the kernel lists.

    A path may lead out of the folder (``../x.h``), or be absolute: that file stays where it is. ``origins`` has the
    paths that the files come from, by the same: what messages on them name.
    """

    name: str
    files: Mapping[str, str]
    origins: Mapping[str, Path] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        """Write the files in a folder, as deep in it as paths lead out; return where the module's folder is then."""
        depth = max(Path(name).parts.count("..") for name in self.files)
        place = folder.joinpath(*["module"] * depth)
        for name, text in self.files.items():
            if not Path(name).is_absolute():
                file = Path(os.path.normpath(place / name))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        return place


@lru_cache(maxsize=1)
def module_folders() -> Sequence[Path]:
    """The folders of ``kmods``. A file is found by its name alone, which is unique among them."""
    return sorted(path for path in data_dir("kmods").iterdir() if path.is_dir())


@lru_cache(maxsize=1)
def templates() -> Mapping[str, Path]:
    """The lab's own modules, by name, with their templates: NAME of ``NAME.c.j2`` becomes ``lab_NAME.ko``."""
    files = (file for folder in module_folders() for file in folder.glob(f"*{TEMPLATE}"))
    return dict(sorted((file.name.removesuffix(TEMPLATE), file) for file in files))


def render(template: str, values: Mapping[str, Value]) -> ModuleSource:
    """Render one of the lab's modules. Raises UsageError for an unknown one, or for a bad or missing value.

    ``symbol`` and ``offset`` may be missing: they are only the defaults of the module's parameters.

    Every value reaches C, so it must be an identifier (a symbol's name), a whole number, or a tuple of these.
    """
    if template not in templates():
        raise UsageError(unknown("module", template, templates()))
    name = f"lab_{template.replace('-', '_')}"
    file = templates()[template]
    return _source(name, _rendered(file, module_folders(), values), module_folders(), file)


def check_parameters(values: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """Values that one of the lab's modules is loaded with. Raises UsageError for a bad one, as ``render`` does."""
    for key, value in values.items():
        _check(key, value)
    return values


def render_own(file: Path, values: Mapping[str, Value]) -> ModuleSource:
    """Render a user's module, a template or a C file, which may include the lab's headers by their names.

    ``NAME.c.j2`` and ``NAME.c`` become ``own_NAME.ko``. A header beside the file hides the lab's of that name.
    Raises ConfigError for a file that cannot be read, UsageError for a missing value.
    """
    stem = file.name.removesuffix(TEMPLATE).removesuffix(".c")
    return render_as(_OWN + re.sub(r"[^a-z0-9]", "_", stem.lower())[:_LONGEST_NAME], file, values)


def render_as(name: str, file: Path, values: Mapping[str, Value]) -> ModuleSource:
    """Render a user's module as ``render_own`` does, and call it ``name``."""
    folders = [file.parent, *module_folders()]
    main = _rendered(file, folders, values) if file.name.endswith(TEMPLATE) else read_c_source(file)
    return _source(name, main, folders, file, (_OWN_FOLDER,))


def source_name(module: Path) -> str:
    """The C file that a user's .ko was probably built from: ``NAME.c`` of ``NAME.ko``, and of our ``own_NAME.ko``."""
    return f"{module.stem.removeprefix(_OWN)}.c"


def _rendered(file: Path, folders: Sequence[Path], values: Mapping[str, Value]) -> str:
    for key, value in values.items():
        _check(key, value)
    environment = SandboxedEnvironment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    try:
        return environment.from_string(read_c_source(file)).render(values)
    except jinja2.UndefinedError as error:
        hint = f"values here: {', '.join(values)}" if values else "exec and shell take values: --set NAME=VALUE"
        what = f"the template needs a value that was not given: {error.message}"
        raise UsageError(what, where=_place(file, error), hint=hint) from None
    except jinja2.TemplateSyntaxError as error:
        # One of another file has its name: the template has included it.
        where = f"{error.filename or file}:{error.lineno}"
        problem = (error.message or "").rstrip(".")
        what = f"this is no template of Jinja's: {problem[:1].lower()}{problem[1:]}"
        raise ConfigError(what, where=where, hint=_SYNTAX) from None
    except jinja2.TemplateNotFound as error:
        what = f"the template includes {error.name!r}, which is neither beside it nor among the lab's modules"
        raise ConfigError(what, where=_place(file, error)) from None
    except (
        *(jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError),
        *(TypeError, ValueError),
    ) as error:
        raise ConfigError(f"the template fails: {error}", where=_place(file, error)) from None


def _place(file: Path, error: Exception) -> str:
    """Where in a template an expression has failed: Jinja gives its frames the template's lines."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    return f"{file}:{lines[0]}" if lines else str(file)


def _source(name: str, main: str, folders: Sequence[Path], main_file: Path, flags: Sequence[str] = ()) -> ModuleSource:
    """A module's files: the main one, and all that it includes. A header that no folder has is the kernel's.

    Those of guests' programs come last: marks are the same in both (``region.h``).

    ``main_file`` is where ``main`` comes from: a header of that name must not bring it in a second time.
    """
    found = included_as(main, [*folders, data_dir("images") / "guest"])
    shared = {path: file for path, file in found.items() if not file.samefile(main_file)}
    files = {f"{name}_main.c": main, **{path: read_c_source(file) for path, file in shared.items()}}
    # A source is compiled by itself where its header is included; another is a part of the file that includes it.
    sources = [one for one in map(Path, shared) if one.suffix in (".c", ".S") and not one.is_absolute()]
    parts = [Path(f"{name}_main.c"), *(one for one in sources if str(one.with_suffix(".h")) in shared)]
    objects = " ".join(str(path.with_suffix(".o")) for path in parts)
    flags = [*flags, *([_FORMAT_ERRORS] if _MARKERS in files else [])]
    ccflags = f"ccflags-y := {' '.join(flags)}\n" if flags else ""
    kbuild = f"obj-m := {name}.o\n{name}-y := {objects}\n{ccflags}"
    return ModuleSource(name, {**files, "Kbuild": kbuild}, {f"{name}_main.c": main_file, **shared})


def _check(key: str, value: Value) -> None:
    elements = [(key, value)]
    if isinstance(value, tuple):
        if len(value) > _LONGEST:
            raise UsageError(f"value {key} has {len(value)} elements, and {_LONGEST} are allowed")
        elements = [(f"{key}[{number}]", element) for number, element in enumerate(value)]
    for name, one in elements:
        if isinstance(one, bool) or not isinstance(one, str | int):
            raise UsageError(f"value {name}={one!r} is neither an identifier nor a whole number")
        if isinstance(one, int) and not -_LARGEST < one < _LARGEST:
            raise UsageError(f"value {name}={one} is out of range")
        if isinstance(one, str) and not _IDENTIFIER.fullmatch(one):
            hint = "a whole number, or letters, digits, '_' and '.'"
            raise UsageError(f"value {name}={one!r} is no identifier", hint=hint)


# The kernel's build system, called for modules outside of its tree.

_NEWER_FLAGS = {"CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT": "-fmin-function-alignment=16"}
"""Options that a kernel has by its compiler, with flags that others do not know; Linux does without them."""


class NoHeadersError(BuildError, UnsupportedError):
    """No module can be built for a kernel, as its headers are not to be had."""


_SIGNED = (
    "CONFIG_MODULE_SIG_FORCE",
    "CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY",
    "CONFIG_LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY",
)
"""Each makes a kernel refuse modules that are not signed with its own key."""
_PLUGIN = re.compile(r"CONFIG_(?:GCC_PLUGIN_\w+|RANDSTRUCT)")


def check_tree(context: BuildContext, kernel: Kernel) -> None:
    """Say what a module may not build for in a user's tree.

    Raises UnusableTreeError where no module of ours can be built there, or none can be loaded.
    """
    if kernel.spec.tree is None:
        return
    for what, hint in _problems(kernel.spec.tree, kernel):
        raise UnusableTreeError(f"no module can be built for the kernel in {kernel.spec.tree}: {what}", hint=hint)
    for note in tree_notes(kernel):
        context.say(f"note: {note}")


def _problems(tree: Path, kernel: Kernel) -> Iterator[tuple[str, str]]:
    config, own, has = kernel.config, compiler_in(kernel.config) or "gcc", kernel.toolchain
    is_clang, programs = own.startswith("clang "), llvm_programs(kernel.config)
    major = own.partition(" ")[2].partition(".")[0]
    make = f"make -C {shlex.quote(str(tree))}"
    by = f"{make}{' LLVM=1' if programs else ' CC=clang' if is_clang else ''}"
    header = tree / "include" / "generated" / "autoconf.h"
    if header.is_file() and ("CONFIG_CC_IS_CLANG 1" in header.read_text(errors="replace")) != is_clang:
        yield f"it was configured for {own} after another compiler built it", f"{by} bzImage modules"
    if is_clang and has.name != "clang":
        linker, packages = (" and ld.lld", f" lld-{major} llvm-{major}") if programs else ("", "")
        again = f"{make} CC=gcc LD=ld olddefconfig bzImage modules"
        install = f"apt-get install clang-{major}{packages}"
        yield f"{own}{linker} made it, which this host does not have", f"{install}, or build it again by gcc: {again}"
    for option in _SIGNED:
        if config.get(option) == "y":
            yield f"it takes signed modules alone ({option})", _without(tree, option)
    if not (tree / "Module.symvers").is_file():
        yield "`make modules` has not run there: it has no Module.symvers", f"{by} modules"
    if not is_clang and any(_PLUGIN.fullmatch(option) and value == "y" for option, value in config.items()):
        if not any((tree / "scripts" / "gcc-plugins").glob("*.so")):
            yield "the plugins of gcc that it is configured with are not there", f"{by} modules"
        if own != has.compiler:
            what = f"the plugins of gcc that made it need {own}, which this host does not have"
            yield what, f"install that compiler as gcc-{major}, or {_without(tree, 'CONFIG_GCC_PLUGINS')}"


def _without(tree: Path, option: str) -> str:
    return f"in {tree}: scripts/config -d {option.removeprefix('CONFIG_')}, and build it again"


def tree_notes(kernel: Kernel) -> list[str]:
    """Why a module may not build for a user's tree; nothing for the lab's own kernels."""
    if kernel.spec.tree is None:
        return []
    differs = compiler_in(kernel.config) not in (None, kernel.toolchain.compiler)
    notes = [str(kernel.compiler_note)] if differs else []
    if kernel.config.get("CONFIG_TRIM_UNUSED_KSYMS") == "y":
        change = _without(kernel.spec.tree, "CONFIG_TRIM_UNUSED_KSYMS")
        notes.append(f"the kernel exports only what its own modules use (CONFIG_TRIM_UNUSED_KSYMS); {change}")
    return notes


@dataclass(frozen=True)
class Places:
    """Paths of the kernel's headers, of their makefile and of the compiler's folder (None: the PATH's)."""

    headers: Path
    makefile: Path
    tools: Path | None

    @classmethod
    def of(cls, kernel: Kernel) -> Places:
        """The places as they are in the cache."""
        return cls(kernel.headers, kernel.headers_makefile, kernel.toolchain.folder)


def make_modules(kernel: Kernel, places: Places, folder: Path, variables: Sequence[str] = ()) -> Finished:
    """Run make on the Kbuild in ``folder``, whatever its status; ``variables`` are of the form ``NAME=VALUE``.

    Raises NoHeadersError.
    """
    if not places.headers.is_dir():
        raise NoHeadersError(f"no module can be built for {kernel.release}: Debian's archive no longer has its headers")
    tools = kernel.toolchain.for_make(places.tools)
    where = ["-C", str(places.headers), "-f", str(places.makefile), f"M={folder}"]
    if places.makefile.parent != places.headers:
        # Else a Makefile since Linux 6.13 takes the source's folder for that of the configured headers.
        where.append(f"KBUILD_OUTPUT={places.headers}")
    return run(
        ["make", *where, *tools, *_other_options(kernel), *variables, "modules"],
        time_limit=300,
        environment=compiling_in(folder),
    )


def _other_options(kernel: Kernel) -> list[str]:
    """Options of a packaged kernel that are off for modules: what takes pahole, and what this compiler cannot do."""
    if kernel.spec.packages is None:
        return []
    lacking = ["CONFIG_DEBUG_INFO_BTF_MODULES"]
    lacking += [option for option, flag in _NEWER_FLAGS.items() if not kernel.toolchain.takes(flag)]
    return [f"{option}=" for option in lacking if kernel.config.get(option) == "y"]


def strip_module(kernel: Kernel, file: Path) -> None:
    """Remove a module's debug information: it is left with a tenth of the size, and no path of this host."""
    strip_debug(kernel.toolchain, file, file.name)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder whose path the kernel's build system accepts."""
    standard = tempfile.gettempdir()
    parent = standard if kbuild_takes(Path(standard)) else "/tmp"  # noqa: S108 - mkdtemp makes it private
    with ScratchFolder("orchestrator-build-", Path(parent)) as scratch:
        yield scratch


@contextlib.contextmanager
def plain_places(kernel: Kernel) -> Iterator[Places]:
    """The places, by links or copies where the kernel's build system does not accept the cache's path."""
    places = Places.of(kernel)
    with scratch_folder() as scratch:
        if places.tools is not None and not kbuild_takes(places.tools):
            (scratch / "tools").symlink_to(places.tools)
            places = replace(places, tools=scratch / "tools")
        if not kbuild_takes(places.headers):
            # Links in the headers are relative to the root of the unpacked packages, usr/src/NAME above them.
            root = kernel.headers.parents[2]
            shutil.copytree(root / "usr", scratch / "usr", symlinks=True)
            headers, makefile = (scratch / path.relative_to(root) for path in (places.headers, places.makefile))
            places = replace(places, headers=headers, makefile=makefile)
        yield places


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

    def build(source: ModuleSource) -> Module | BuildError:
        try:
            return _build(context, kernel, source, places)
        except BuildError as error:
            return error

    with (
        plain_places(kernel) as places,
        ThreadPoolExecutor(max(1, len(os.sched_getaffinity(0))), thread_name_prefix="build") as pool,
    ):
        return list(pool.map(build, sources))


def show_warnings(context: BuildContext, kernel: Kernel, modules: Sequence[Module]) -> None:
    """Show each text of warnings once: cells share modules."""
    for name, lines in dict.fromkeys((module.name, module.warnings) for module in modules if module.warnings):
        heading = f"module {name} for {kernel.spec.name} builds with warnings:"
        for line in (heading, *lines):
            with step(line):
                pass
        more = [f"... and {len(lines) - _SHOWN_LINES} lines more"] if len(lines) > _SHOWN_LINES else []
        context.warn("\n".join([heading, *lines[:_SHOWN_LINES], *more]))


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
    return build_error(f"module {source.name} does not build", kept, origins, main, hints)
