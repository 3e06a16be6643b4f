# SPDX-License-Identifier: GPL-2.0-only
"""The small freestanding programs that are compiled for guests, and shared libraries of users' C files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.diagnostics import compile_error
from orchestrator.artifacts.inclusion import included, read_source
from orchestrator.artifacts.own_sources import OwnSource, files_read, own_file
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.errors import ConfigError
from orchestrator.paths import data_dir
from orchestrator.process import run

_CODE = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fcf-protection=none"),
    *("-fno-asynchronous-unwind-tables", "-nostdlib"),
    "-Wl,--build-id=none,-z,noexecstack",
)
_FIXED = ("-fno-pie", "-no-pie")
_FLAGS = (*_CODE, *_FIXED, "-static")
LIBRARIES = "/tmp/libraries"  # noqa: S108 - in the guest
"""Where a program looks first for its shared libraries."""
_LINKED = (
    # A library's own memcpy() must not give way to that of runtime.c, as to an exported one it would.
    *(*_CODE, *_FIXED, "-fvisibility=hidden"),
    # All is resolved before the first call. The library that lacks a symbol finds it in the guest.
    *("-Wl,-z,now", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"),
    # As the older tag, which libraries of libraries are looked for by as well.
    f"-Wl,--disable-new-dtags,-rpath,{LIBRARIES}",
)
_SHARED = (*_CODE, "-fPIC", "-shared")
_LOADERS = {"i386": "/lib/ld-linux.so.2", "x86_64": "/lib64/ld-linux-x86-64.so.2"}
_WIDTH = {"i386": "-m32", "x86_64": "-m64"}
_COMPILE_LIMIT = 60.0
_COMPILED = (".c", ".S")
_IN_A_LIBRARY = "a function that it calls has to be in one of benchmark.libraries, or in runtime.h"


def build_environment() -> dict[str, str | None]:
    """The environment of a build, without what the user has set there: KCFLAGS, ARCH, CPATH and their like.

    They would change what is built without changing its key in the cache.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**dict.fromkeys(os.environ), **kept, "LC_ALL": "C"}


def compiling_in(folder: Path) -> dict[str, str | None]:
    """The same with the compiler's temporary files in a folder that goes with the build: a killed one leaves them."""
    return {**build_environment(), "TMPDIR": str(folder)}


def guest_programs(context: BuildContext, arch: str) -> Artifact:
    """``init``, ``agent`` and the benchmarks of ``images/guest``, as static programs for ``arch``."""
    folder, toolchain = data_dir("images") / "guest", guest_toolchain(context)
    mains = [file for file in sorted(folder.glob("*.c")) if not file.with_suffix(".h").exists()]
    sources = {main: [main, *included(read_source(main), [folder])] for main in mains}
    inputs = {
        "arch": arch,
        "compiler": toolchain.version,
        "flags": _FLAGS,
        "sources": {file.name: read_source(file) for files in sources.values() for file in files},
    }

    def build(target: Path) -> None:
        context.say(f"compiling the guest's programs ({arch})")
        for main, files in sources.items():
            _compile(toolchain, arch, files, [], target / main.stem)

    return context.cache.obtain("programs", inputs, f"guest programs, {arch}", build)


def bpf_tool(context: BuildContext, arch: str) -> Path:
    """``images/bpf/bpfprobe.c``, which attaches BPF programs in a guest, as a static program for ``arch``."""
    images, toolchain = data_dir("images"), guest_toolchain(context)
    folders = [images / "bpf", images / "guest"]
    main = folders[0] / "bpfprobe.c"
    files = [main, *included(read_source(main), folders)]
    inputs = {
        "arch": arch,
        "compiler": toolchain.version,
        "flags": _FLAGS,
        "sources": {file.name: read_source(file) for file in files},
    }

    def build(target: Path) -> None:
        _compile(toolchain, arch, files, folders, target / main.stem)

    return context.cache.obtain("programs", inputs, f"bpfprobe, {arch}", build).path / main.stem


@dataclass(frozen=True)
class Compiled:
    """A user's C file, compiled, and what it was compiled from."""

    file: Path
    source: OwnSource


def workload_program(context: BuildContext, arch: str, file: Path, libraries: Sequence[Path] = ()) -> Path:
    """What ``compiled_workload`` makes."""
    return compiled_workload(context, arch, file, libraries).file


def compiled_workload(context: BuildContext, arch: str, file: Path, libraries: Sequence[Path] = ()) -> Compiled:
    """A user's C file, which defines ``workload()``, as a program that times it (``images/workload``).

    It is static, or linked with shared ``libraries``; its addresses are fixed either way. Raises BuildError with the
    compiler's words, ConfigError for a file that cannot be read.
    """
    images, toolchain = data_dir("images"), guest_toolchain(context)
    folders = [file.parent, images / "workload", images / "guest"]
    text = read_source(file)
    # The user's own file as well, where it has a header of its name.
    shared = [other for other in included('#include "workload.h"\n' + text, folders) if other != file]
    if any(other.parent == file.parent and other.name == "workload.h" for other in shared):
        raise ConfigError("a workload.h of its own stands beside it, which is the lab's name", where=str(file))
    timed = included('#include "bench.h"\n', folders[1:])
    files = [file, *dict.fromkeys([*shared, *timed])]
    flags = (*_linked_with(arch, libraries), "-Wno-error") if libraries else (*_FLAGS, "-Wno-error")
    source = _source(toolchain, arch, files, folders)
    inputs = {
        "arch": arch,
        "compiler": toolchain.version,
        "flags": flags,
        "libraries": {str(library): hashlib.sha256(library.read_bytes()).hexdigest() for library in libraries},
        "file": source.file,
        "sources": source.digests,
    }

    def build(target: Path) -> None:
        _compile(toolchain, arch, files, folders, target / "workload", flags)

    return Compiled(context.cache.obtain("workloads", inputs, f"{file.name}, {arch}", build).path / "workload", source)


def shared_library(context: BuildContext, arch: str, file: Path) -> Compiled:
    """A user's C file ``NAME.c`` as the shared library ``NAME.so``. It may include ``usdt.h``.

    Raises BuildError with the compiler's words, ConfigError for a file that cannot be read.
    """
    toolchain, name = guest_toolchain(context), f"{file.stem}.so"
    folders = [file.parent, data_dir("images") / "workload"]
    files = [file, *(other for other in included(read_source(file), folders) if other != file)]
    flags = (*_SHARED, f"-Wl,-soname,{name}", "-Wno-error")
    source = _source(toolchain, arch, files, folders)
    inputs = {
        "arch": arch,
        "compiler": toolchain.version,
        "flags": flags,
        "file": source.file,
        "sources": source.digests,
    }

    def build(target: Path) -> None:
        _compile(toolchain, arch, files, folders, target / name, flags)

    return Compiled(context.cache.obtain("workloads", inputs, f"{name}, {arch}", build).path / name, source)


def _source(toolchain: Toolchain, arch: str, files: Sequence[Path], folders: Sequence[Path]) -> OwnSource:
    """The first of the files, with all that is compiled."""
    sources = [str(file) for file in files if file.suffix in _COMPILED]
    words = [toolchain.program("gcc"), _WIDTH[arch], *_CODE, *(f"-I{folder}" for folder in folders), *sources]
    return own_file(files[0], [*files, *files_read(words, build_environment())], toolchain.packages)


def _linked_with(arch: str, libraries: Sequence[Path]) -> tuple[str, ...]:
    # By -l, a library without a name of its own (SONAME) is found by that of its file, not by the host's path.
    named = (word for library in libraries for word in (f"-L{library.parent}", f"-l:{library.name}"))
    return (*_LINKED, f"-Wl,--dynamic-linker={_LOADERS[arch]}", *named)


def compile_program(context: BuildContext, arch: str, main: Path, target: Path) -> None:
    """Compile a freestanding program that includes what it needs of ``images/guest``. Raises BuildError."""
    folder = data_dir("images") / "guest"
    _compile(guest_toolchain(context), arch, [main, *included(read_source(main), [folder])], [folder], target)


def _compile(
    toolchain: Toolchain,
    arch: str,
    files: Sequence[Path],
    folders: Sequence[Path],
    target: Path,
    flags: Sequence[str] = _FLAGS,
) -> None:
    sources = [str(file) for file in files if file.suffix in _COMPILED]
    # A library counts for what stands before it.
    wanted = [*(f"-I{folder}" for folder in folders), "-o", str(target), *sources, *flags]
    argv = [toolchain.program("gcc"), _WIDTH[arch], *wanted]
    finished = run(argv, time_limit=_COMPILE_LIMIT, environment=compiling_in(target.parent))
    if finished.status != 0:
        without = "there is no C library: runtime.h has what there is" if "-static" in flags else _IN_A_LIBRARY
        raise compile_error(files[0].name, finished, without if folders else "")
