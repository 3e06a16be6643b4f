# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's build system, called for modules outside of its tree."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.kernels import Kernel, UnusableTreeError
from orchestrator.artifacts.toolchain import compiler_in, llvm_programs
from orchestrator.errors import BuildError, UnsupportedError
from orchestrator.paths import kbuild_takes
from orchestrator.process import Finished, run
from orchestrator.scratch import ScratchFolder

_BUILD_LIMIT = 300.0
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
    """What is wrong with a tree, and what to do about it."""
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
        time_limit=_BUILD_LIMIT,
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
    stripped = run([kernel.toolchain.program("strip"), "--strip-debug", str(file)], time_limit=_BUILD_LIMIT)
    if stripped.status != 0:
        raise BuildError(f"strip fails on {file.name}", detail=stripped.complaint())


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
