# SPDX-License-Identifier: GPL-2.0-only
"""A user's C files as programs and shared libraries for a guest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import (
    CODE,
    COMPILED,
    FIXED,
    KERNEL_HEADERS,
    STATIC,
    build_environment,
    compile_sources,
)
from orchestrator.artifacts.guest_headers import guest_headers
from orchestrator.artifacts.sources import UserSource, files_read, included, read_c_source, user_source
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.errors import ConfigError
from orchestrator.files import sha256_of
from orchestrator.host_packages import check_installed
from orchestrator.paths import data_dir

LIBRARIES = "/tmp/libraries"  # noqa: S108 - in the guest
"""Where a program first looks for its shared libraries."""
_LINKED = (
    # A library's own memcpy() must win over that of runtime.c, which an exported symbol would not.
    *(*CODE, *FIXED, "-fvisibility=hidden"),
    # Resolve everything before the first call; a library with undefined symbols finds them in the guest.
    *("-Wl,-z,now", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"),
    # The older tag, which also applies to libraries of libraries.
    f"-Wl,--disable-new-dtags,-rpath,{LIBRARIES}",
)
_OF_KERNEL = re.compile(r"^\s*#\s*include\s*<(?:linux|asm|asm-generic)/", re.MULTILINE)


@dataclass(frozen=True)
class Compiled:
    """A compiled C file of a user's, with its source."""

    file: Path
    source: UserSource


def compiled_workload(context: BuildContext, arch: str, file: Path, libraries: Sequence[Path] = ()) -> Compiled:
    """A user's ``workload()``, linked at fixed addresses with code that times it. Raises BuildError, ConfigError."""
    images, toolchain = data_dir("images"), guest_toolchain(context)
    headers = guest_headers(context)
    folders = [file.parent, images / "workload", images / "guest", headers]
    # This includes a user's own workload.h, if there is one.
    text = '#include "workload.h"\n' + read_c_source(file)
    shared = [path for path in included(text, folders) if path != file]
    if any(path.parent == file.parent and path.name == "workload.h" for path in shared):
        raise ConfigError("its folder has a workload.h, a name that is reserved for the lab's", where=str(file))
    timed = included('#include "bench.h"\n', folders[1:])
    files = [file, *dict.fromkeys([*shared, *timed])]
    # With -l:, a library without SONAME is recorded by its file name, not by its path on the host.
    named = (word for library in libraries for word in (f"-L{library.parent}", f"-l:{library.name}"))
    linked = (*_LINKED, f"-Wl,--dynamic-linker={ARCHITECTURES[arch].loader}", *named) if libraries else STATIC
    flags = (*linked, "-Wno-error", KERNEL_HEADERS)
    source, inputs = _source(toolchain, arch, files, folders, [headers])
    digests = {str(library): sha256_of(library) for library in libraries}
    inputs = {**inputs, "flags": flags, "libraries": digests}
    compile_it = partial(compile_sources, toolchain, arch, files, folders, flags=flags)
    made = context.cache.obtain_file("workloads", inputs, f"{file.name}, {arch}", "workload", compile_it)
    return Compiled(made, source)


def shared_library(context: BuildContext, arch: str, file: Path) -> Compiled:
    """A user's ``NAME.c`` as ``NAME.so``; it may include ``usdt.h``. Raises BuildError, ConfigError."""
    toolchain, name = guest_toolchain(context), f"{file.stem}.so"
    folders = [file.parent, data_dir("images") / "workload"]
    files = [file, *(path for path in included(read_c_source(file), folders) if path != file)]
    flags = (*CODE, "-fPIC", "-shared", f"-Wl,-soname,{name}", "-Wno-error", KERNEL_HEADERS)
    source, inputs = _source(toolchain, arch, files, folders)
    compile_it = partial(compile_sources, toolchain, arch, files, folders, flags=flags)
    made = context.cache.obtain_file("workloads", {**inputs, "flags": flags}, f"{name}, {arch}", name, compile_it)
    return Compiled(made, source)


def _source(
    toolchain: Toolchain,
    arch: str,
    files: Sequence[Path],
    folders: Sequence[Path],
    generated: Sequence[Path] = (),
) -> tuple[UserSource, Mapping[str, object]]:
    """The source as a ``UserSource``, and the inputs that decide the result besides flags.

    ``generated`` are the folders whose headers the lab has generated.
    """
    if any(_OF_KERNEL.search(read_c_source(file)) for file in files):
        check_installed("header-packages.txt", f"{files[0].name}, which includes headers of the kernel,")
    sources = [str(file) for file in files if file.suffix in COMPILED]
    places = (f"-I{folder}" for folder in folders)
    words = [toolchain.program("gcc"), ARCHITECTURES[arch].gcc_flag, *CODE, *places, KERNEL_HEADERS, *sources]
    read = [*files, *files_read(words, build_environment())]
    source = user_source(files[0], read, toolchain.packages, generated)
    facts = {"arch": arch, "compiler": toolchain.version, "file": source.file, "sources": source.digests}
    return source, facts
