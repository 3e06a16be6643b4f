# SPDX-License-Identifier: GPL-2.0-only
"""What the compilers make: guest programs, users' shared libraries, and QEMU's plugin."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal

from orchestrator.arch import ARCHITECTURES, HOST
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.diagnostics import compile_error
from orchestrator.artifacts.guest_headers import guest_headers
from orchestrator.artifacts.sources import UserSource, files_read, included, read_c_source, user_source
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.errors import ConfigError
from orchestrator.files import sha256_of
from orchestrator.host_packages import check_installed
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
"""Where a program first looks for its shared libraries."""
_LINKED = (
    # A library's own memcpy() must win over that of runtime.c, which an exported symbol would not.
    *(*_CODE, *_FIXED, "-fvisibility=hidden"),
    # Resolve everything before the first call; a library with undefined symbols finds them in the guest.
    *("-Wl,-z,now", "-Wl,--no-as-needed", "-Wl,--allow-shlib-undefined"),
    # The older tag, which also applies to libraries of libraries.
    f"-Wl,--disable-new-dtags,-rpath,{LIBRARIES}",
)
INCLUDE = Path("/usr/include")
MULTIARCH = INCLUDE / HOST.triplet
_KERNEL_HEADERS = f"-idirafter{MULTIARCH}"
"""Where the host's compiler for i386 finds <asm/...>, which is for both."""
_OF_KERNEL = re.compile(r"^\s*#\s*include\s*<(?:linux|asm|asm-generic)/", re.MULTILINE)
COMPILE_LIMIT = 60.0
_COMPILED = (".c", ".S")
_IN_A_LIBRARY = "functions that it calls must be in one of benchmark.libraries, or in runtime.h"


def build_environment() -> dict[str, str | None]:
    """A build environment without KCFLAGS, ARCH, CPATH and other user settings, which no cache key covers."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**dict.fromkeys(os.environ), **kept, "LC_ALL": "C"}


def compiling_in(folder: Path) -> dict[str, str | None]:
    """The same, with the compiler's temporary files in the build's folder: a killed compiler leaves them behind."""
    return {**build_environment(), "TMPDIR": str(folder)}


def _own_inputs(toolchain: Toolchain, flags: Sequence[str], files: Iterable[Path]) -> dict[str, object]:
    sources = {file.name: read_c_source(file) for file in files}
    return {"compiler": toolchain.version, "flags": flags, "sources": sources}


def guest_programs(context: BuildContext, arch: str) -> Artifact:
    """``init``, ``agent`` and the benchmarks of ``images/guest`` as static programs for ``arch``."""
    folder, toolchain = data_dir("images") / "guest", guest_toolchain(context)
    folders = [folder, guest_headers(context)]
    mains = [file for file in sorted(folder.glob("*.c")) if not file.with_suffix(".h").exists()]
    sources = {main: [main, *included(read_c_source(main), folders)] for main in mains}
    inputs = {"arch": arch, **_own_inputs(toolchain, _FLAGS, chain.from_iterable(sources.values()))}

    def build(target: Path) -> None:
        context.say(f"compiling the guest's programs ({arch})")
        for main, files in sources.items():
            _compile(toolchain, arch, files, folders, target / main.stem)

    return context.cache.obtain("programs", inputs, f"guest programs, {arch}", build)


def bpf_tool(context: BuildContext, arch: str, name: str = "bpfprobe") -> Path:
    """``images/bpf/NAME.c``, which attaches BPF programs in a guest, as a static program for ``arch``."""
    toolchain, folders, files = _lab_files(context, f"bpf/{name}.c")
    inputs = {"arch": arch, **_own_inputs(toolchain, _FLAGS, files)}
    compile_it = partial(_compile, toolchain, arch, files, folders)
    return context.cache.obtain_file("programs", inputs, f"{name}, {arch}", name, compile_it)


def _lab_files(context: BuildContext, name: str) -> tuple[Toolchain, list[Path], list[Path]]:
    main = data_dir("images") / name
    folders = [main.parent, data_dir("images") / "guest", guest_headers(context)]
    return guest_toolchain(context), folders, [main, *included(read_c_source(main), folders)]


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
    linked = (*_LINKED, f"-Wl,--dynamic-linker={ARCHITECTURES[arch].loader}", *named) if libraries else _FLAGS
    flags = (*linked, "-Wno-error", _KERNEL_HEADERS)
    source, inputs = _source(toolchain, arch, files, folders, [headers])
    digests = {str(library): sha256_of(library) for library in libraries}
    inputs = {**inputs, "flags": flags, "libraries": digests}
    compile_it = partial(_compile, toolchain, arch, files, folders, flags=flags)
    made = context.cache.obtain_file("workloads", inputs, f"{file.name}, {arch}", "workload", compile_it)
    return Compiled(made, source)


def shared_library(context: BuildContext, arch: str, file: Path) -> Compiled:
    """A user's ``NAME.c`` as ``NAME.so``; it may include ``usdt.h``. Raises BuildError, ConfigError."""
    toolchain, name = guest_toolchain(context), f"{file.stem}.so"
    folders = [file.parent, data_dir("images") / "workload"]
    files = [file, *(path for path in included(read_c_source(file), folders) if path != file)]
    flags = (*_CODE, "-fPIC", "-shared", f"-Wl,-soname,{name}", "-Wno-error", _KERNEL_HEADERS)
    source, inputs = _source(toolchain, arch, files, folders)
    compile_it = partial(_compile, toolchain, arch, files, folders, flags=flags)
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
    sources = [str(file) for file in files if file.suffix in _COMPILED]
    places = (f"-I{folder}" for folder in folders)
    words = [toolchain.program("gcc"), ARCHITECTURES[arch].gcc_flag, *_CODE, *places, _KERNEL_HEADERS, *sources]
    read = [*files, *files_read(words, build_environment())]
    source = user_source(files[0], read, toolchain.packages, generated)
    facts = {"arch": arch, "compiler": toolchain.version, "file": source.file, "sources": source.digests}
    return source, facts


def _compile(
    toolchain: Toolchain,
    arch: str,
    files: Sequence[Path],
    folders: Sequence[Path],
    target: Path,
    flags: Sequence[str] = _FLAGS,
) -> None:
    sources = [str(file) for file in files if file.suffix in _COMPILED]
    # Libraries apply to the objects before them.
    arguments = [*(f"-I{folder}" for folder in folders), "-o", str(target), *sources, *flags]
    argv = [toolchain.program("gcc"), ARCHITECTURES[arch].gcc_flag, *arguments]
    finished = run(argv, time_limit=COMPILE_LIMIT, environment=compiling_in(target.parent))
    if finished.status != 0:
        without = "there is no C library: use the functions of runtime.h" if "-static" in flags else _IN_A_LIBRARY
        raise compile_error(files[0].name, finished, without if folders else "")


# Its C library functions come from the QEMU that loads it: it needs neither headers nor start files.
_PLUGIN_FLAGS = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-m64"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fvisibility=hidden"),
    *("-fPIC", "-shared", "-nostdlib", "-Wl,--build-id=none,-z,noexecstack"),
)


_PLUGINS = {"count": "counting plugin", "cover": "coverage plugin", "cpus": "plugin for several CPUs"}


def qemu_plugin(context: BuildContext, name: Literal["count", "cover", "cpus"]) -> Path:
    """A plugin of ``images/plugin``, built by the compiler of the guest programs. Raises HostError, BuildError."""
    toolchain, folders, files = _lab_files(context, f"plugin/{name}.c")
    inputs = _own_inputs(toolchain, _PLUGIN_FLAGS, files)
    compile_it = partial(_compile, toolchain, HOST.name, files, folders, flags=_PLUGIN_FLAGS)
    return context.cache.obtain_file("plugins", inputs, f"QEMU's {_PLUGINS[name]}", f"{name}.so", compile_it)
