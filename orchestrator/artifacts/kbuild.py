# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's build system, which builds modules outside of its tree: what it needs, and whether it can."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.kernel_source import kernel_source
from orchestrator.artifacts.ready_kernels import Kernel, UnusableTreeError
from orchestrator.artifacts.toolchain import Toolchain, compiler_in, llvm_programs
from orchestrator.errors import BuildError, HostError, UnsupportedError
from orchestrator.files import ScratchFolder
from orchestrator.paths import AWKWARD, kbuild_takes
from orchestrator.process import Finished, run

_NEWER_FLAGS = {"CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT": "-fmin-function-alignment=16"}
"""Options that a kernel has because of its compiler, with flags that other compilers lack. Linux can do without."""


class NoHeadersError(BuildError, UnsupportedError):
    """No module can be built for a kernel because its headers are not available."""


@dataclass(frozen=True)
class Kbuild:
    """The build system of the kernel called ``name``: ``make -C HEADERS -f MAKEFILE`` with the ``toolchain``.

    ``config`` is the configuration of the headers, and ``is_packaged`` whether another host built them. ``inputs`` are
    what a module's build depends on besides its sources, and ``notes`` why one may fail in a user's tree.
    """

    name: str
    release: str
    headers: Path
    makefile: Path
    toolchain: Toolchain
    config: Mapping[str, str] = field(repr=False)
    is_packaged: bool
    inputs: Mapping[str, str]
    notes: Sequence[str]

    @cached_property
    def debug_flag(self) -> str:
        """The compiler's flag for a module's debug information, if the kernel makes nothing else of it.

        It is stripped. Without it objects take a tenth less to compile; and the build ID, a digest of the module before
        it is stripped, does not depend on the build's folder.
        """
        made = ["CONFIG_GENDWARFKSYMS", *([] if self.is_packaged else ["CONFIG_DEBUG_INFO_BTF_MODULES"])]
        return "" if any(self.config.get(option) == "y" for option in made) else "-g0"

    def make(self, folder: Path, variables: Sequence[str], answers: Mapping[str, str]) -> Finished:
        """Run make on the Kbuild in ``folder``, whatever its exit status. Raises NoHeadersError, HostError."""
        headers, makefile = self.headers, self.makefile
        if not headers.is_dir():
            what = f"no module can be built for {self.release}: Debian's archive no longer has its headers"
            raise NoHeadersError(what)
        if not kbuild_takes(headers):
            what = f"no module can be built with {headers}: its path has {AWKWARD}"
            raise HostError(what, hint="set ORCHESTRATOR_CACHE to another folder")
        where = ["-C", str(headers), "-f", str(makefile), f"M={folder}"]
        if makefile.parent != headers or "export KBUILD_OUTPUT" in makefile.read_text(errors="replace"):
            # Else a Makefile since Linux 6.13 takes the source's folder for that of the configured headers, or, in a
            # folder that a kernel was built in, that folder by the name that it had meanwhile.
            where.append(f"KBUILD_OUTPUT={headers}")
        argv = ["make", *where, *self.toolchain.for_make(), *self._unset, *variables, "modules"]
        return run(argv, time_limit=300, environment={**compiling_in(folder), **answers})

    @cached_property
    def _unset(self) -> Sequence[str]:
        """Options of a packaged kernel turned off for modules: those that need pahole or another compiler."""
        if not self.is_packaged:
            return []
        lacking = ["CONFIG_DEBUG_INFO_BTF_MODULES"]
        lacking += [option for option, flag in _NEWER_FLAGS.items() if not self.toolchain.takes(flag)]
        return [f"{option}=" for option in lacking if self.config.get(option) == "y"]


def kbuild_of(kernel: Kernel) -> Kbuild:
    """A kernel's build system. Of a user's tree all headers are read."""
    return Kbuild(
        kernel.spec.name,
        kernel.release,
        kernel.headers,
        kernel.headers_makefile,
        kernel.toolchain,
        kernel.config,
        is_packaged=kernel.spec.packages is not None,
        inputs=kernel.module_inputs,
        notes=_tree_notes(kernel),
    )


def make_modules(context: BuildContext, kbuild: Kbuild, folder: Path, variables: Sequence[str] = ()) -> Finished:
    """Run make on the Kbuild in ``folder``, whatever its exit status. Raises NoHeadersError, HostError."""
    context.cache.verify(kbuild.makefile)
    answers = _answers(context, kbuild)
    return kbuild.make(folder, variables, {} if answers is None else _answered_by(answers))


_ANSWERS, _SUCCEEDED = Path(__file__).with_name("compiler-answers.mk"), "succeeded"


def _answers(context: BuildContext, kbuild: Kbuild) -> Path | None:
    """What the kernel's build system asks the compiler at each start, and the compiler takes.

    None where it does not start: the module's own build says why.
    """

    def record(folder: Path) -> None:
        shutil.copy(_ANSWERS, folder)
        (folder / _SUCCEEDED).touch()
        with scratch_folder() as scratch:
            (scratch / "Kbuild").touch()
            recorded = {**_answered_by(folder), "LAB_RECORD": "1"}
            kbuild.make(scratch, (), recorded).or_raise(BuildError, f"{kbuild.name} takes no modules")

    inputs = {**kbuild.inputs, "linker": kbuild.toolchain.linker, "makefile": _ANSWERS.read_text()}
    label = f"the compiler's answers for {kbuild.name}"
    with contextlib.suppress(BuildError):
        return context.cache.obtain("compiler-answers", inputs, label, record).path
    return None


def _answered_by(folder: Path) -> dict[str, str]:
    """Variables for make, which splits MAKEFILES at spaces: in a cache whose path has one, the compiler is asked."""
    return {"MAKEFILES": str(folder / _ANSWERS.name), "LAB_SUCCEEDED": str(folder / _SUCCEEDED)}


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder whose path the kernel's build system accepts."""
    standard = tempfile.gettempdir()
    parent = standard if kbuild_takes(Path(standard)) else "/tmp"  # noqa: S108 - mkdtemp makes it private
    with ScratchFolder("orchestrator-build-", Path(parent)) as scratch:
        yield scratch


_SIGNED = (
    "CONFIG_MODULE_SIG_FORCE",
    "CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY",
    "CONFIG_LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY",
)
"""With any of these a kernel rejects modules not signed by its own key."""
_PLUGIN = re.compile(r"CONFIG_(?:GCC_PLUGIN_\w+|RANDSTRUCT)")


def check_buildable(context: BuildContext, kernel: Kernel) -> None:
    """Verify the source of a lab kernel, and report what may not build for a user's tree.

    Raises UnusableTreeError if no module can be built or loaded, BuildError, HostError.
    """
    spec = kernel.spec
    if spec.source is not None:
        kernel_source(context, spec.source, spec.patch_files, spec.files, is_verified=True)
    if spec.tree is not None:
        for what, hint in _problems(spec.tree, kernel):
            raise UnusableTreeError(f"no module can be built for the kernel in {spec.tree}: {what}", hint=hint)
        for note in _tree_notes(kernel):
            context.say(f"note: {note}")


def _problems(tree: Path, kernel: Kernel) -> Iterator[tuple[str, str]]:
    config, compiler, has = kernel.config, compiler_in(kernel.config) or "gcc", kernel.toolchain
    is_clang, programs = compiler.startswith("clang "), llvm_programs(kernel.config)
    major = compiler.partition(" ")[2].partition(".")[0]
    make = f"make -C {shlex.quote(str(tree))}"
    by = f"{make}{' LLVM=1' if programs else ' CC=clang' if is_clang else ''}"
    header = tree / "include" / "generated" / "autoconf.h"
    if header.is_file() and ("CONFIG_CC_IS_CLANG 1" in header.read_text(errors="replace")) != is_clang:
        yield f"it was configured for {compiler} after another compiler built it", f"{by} bzImage modules"
    if is_clang and has.name != "clang":
        linker, packages = (" and ld.lld", f" lld-{major} llvm-{major}") if programs else ("", "")
        again = f"{make} CC=gcc LD=ld olddefconfig bzImage modules"
        install = f"apt-get install clang-{major}{packages}"
        yield (
            f"it was built by {compiler}{linker}, which this host does not have",
            f"{install}, or build it again with gcc: {again}",
        )
    for option in _SIGNED:
        if config.get(option) == "y":
            yield f"it accepts only signed modules ({option})", _without(tree, option)
    if not (tree / "Module.symvers").is_file():
        yield "`make modules` has not run there: it has no Module.symvers", f"{by} modules"
    if not is_clang and any(_PLUGIN.fullmatch(option) and value == "y" for option, value in config.items()):
        if not any((tree / "scripts" / "gcc-plugins").glob("*.so")):
            yield "the gcc plugins in its configuration are not built", f"{by} modules"
        if compiler != has.compiler:
            what = f"its gcc plugins need {compiler}, which this host does not have"
            yield what, f"install that compiler as gcc-{major}, or {_without(tree, 'CONFIG_GCC_PLUGINS')}"


def _without(tree: Path, option: str) -> str:
    return f"in {tree}: scripts/config -d {option.removeprefix('CONFIG_')}, and build it again"


def _tree_notes(kernel: Kernel) -> list[str]:
    """Why modules may not build for a user's tree; empty for other kernels."""
    if kernel.spec.tree is None:
        return []
    differs = compiler_in(kernel.config) not in (None, kernel.toolchain.compiler)
    notes = [str(kernel.compiler_note)] if differs else []
    if kernel.config.get("CONFIG_TRIM_UNUSED_KSYMS") == "y":
        change = _without(kernel.spec.tree, "CONFIG_TRIM_UNUSED_KSYMS")
        notes.append(f"the kernel exports only what its own modules use (CONFIG_TRIM_UNUSED_KSYMS); {change}")
    return notes
