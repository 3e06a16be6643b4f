# SPDX-License-Identifier: GPL-2.0-only
"""Kernel modules, built against a kernel's headers by its own build system and cached by content."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from orchestrator.artifacts.cache import BuildContext, digest
from orchestrator.artifacts.compiler import compiler_in, compiling_in, llvm_programs
from orchestrator.artifacts.diagnostics import build_error, error_hint, keep_warnings, kept_output, shown_warnings
from orchestrator.artifacts.kernel_build import strip_debug
from orchestrator.artifacts.kernel_source import sound_source
from orchestrator.artifacts.kernels import Kernel, UnusableTreeError
from orchestrator.artifacts.module_source import ModuleSource, Scalar
from orchestrator.errors import BuildError, UnsupportedError
from orchestrator.files import ScratchFolder
from orchestrator.paths import kbuild_takes
from orchestrator.process import Finished, run
from orchestrator.steps import step

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


# Kernel modules, built against a kernel's headers and cached by content.

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
            others = _take_objects(context, kernel, source, here)
            mapped = f"-ffile-prefix-map={here}/="  # else a module's messages and build ID have the folder's name
            finished = make_modules(kernel, places, here, [f"KCFLAGS={mapped}", f"KAFLAGS={mapped}"])
            if finished.status != 0:
                raise _build_error(context, kernel, source, here, finished.stdout + finished.stderr)
            if not finished.stderr:  # a warning is shown with each module
                _keep_objects(context, kernel, others, here)
            strip_module(kernel, here / f"{source.name}.ko")
            shutil.copy(here / f"{source.name}.ko", folder / f"{source.name}.ko")
            (folder / "sources").mkdir()
            keep_warnings(folder / "sources", finished.stderr, here)
            source.write(folder / "sources")

    label = f"{source.name} for {kernel.spec.name}"
    artifact = context.cache.obtain("modules", _inputs(kernel, source), label, build)
    warnings = shown_warnings(artifact.path / "sources", source.origins)
    return Module(source.name, artifact.path / f"{source.name}.ko", artifact.key, artifact.path / "sources", warnings)


def _take_objects(
    context: BuildContext, kernel: Kernel, source: ModuleSource, here: Path
) -> dict[str, dict[str, object]]:
    """Put the objects that other modules of the same texts have brought in their sources' place; return the others.

    Nine of ten files of a module are in others as well, and each takes a third of a second: a module takes 1.3 seconds
    of one CPU for 4.2. ``.o_shipped`` is Kbuild's own word for an object that is not compiled.
    """
    others = {}
    for name, texts in source.parts().items():
        inputs: dict[str, object] = {
            "kernel": kernel.key,
            "compiler": kernel.toolchain.version,
            "object": name,
            "texts": digest(texts),
        }
        found = context.cache.get("module-objects", inputs)
        if found is None:
            others[name] = inputs
            continue
        next(here.glob(f"{name}.[cS]")).unlink()
        shutil.copy(found.path / f"{name}.o", here / f"{name}.o_shipped")
        (here / f".{name}.o.cmd").touch()  # modpost reads it
    return others


def _keep_objects(
    context: BuildContext, kernel: Kernel, objects: Mapping[str, Mapping[str, object]], here: Path
) -> None:
    for name, inputs in objects.items():

        def keep(folder: Path, file: str = f"{name}.o") -> None:
            shutil.copy(here / file, folder / file)

        context.cache.obtain("module-objects", inputs, f"{name}.o for {kernel.spec.name}", keep)


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
