# SPDX-License-Identifier: GPL-2.0-only
"""The compiler of guest programs: its flags and environment, what decides its result, and what it says of errors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from orchestrator.arch import ARCHITECTURES, HOST
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.diagnostics import compile_error
from orchestrator.artifacts.guest_headers import guest_headers
from orchestrator.artifacts.sources import included, read_c_source
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.paths import data_dir
from orchestrator.process import run

CODE = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fcf-protection=none"),
    *("-fno-asynchronous-unwind-tables", "-nostdlib"),
    "-Wl,--build-id=none,-z,noexecstack",
)
FIXED = ("-fno-pie", "-no-pie")
STATIC = (*CODE, *FIXED, "-static")
INCLUDE = Path("/usr/include")
MULTIARCH = INCLUDE / HOST.triplet
KERNEL_HEADERS = f"-idirafter{MULTIARCH}"
"""Where the host's compiler for i386 finds <asm/...>, which is for both."""
COMPILE_LIMIT = 60.0
COMPILED = (".c", ".S")
_IN_A_LIBRARY = "functions that it calls must be in one of benchmark.libraries, or in runtime.h"


def build_environment() -> dict[str, str | None]:
    """A build environment without KCFLAGS, ARCH, CPATH and other user settings, which no cache key covers."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**dict.fromkeys(os.environ), **kept, "LC_ALL": "C"}


def compiling_in(folder: Path) -> dict[str, str | None]:
    """The same, with the compiler's temporary files in the build's folder: a killed compiler leaves them behind."""
    return {**build_environment(), "TMPDIR": str(folder)}


def lab_inputs(toolchain: Toolchain, flags: Sequence[str], files: Iterable[Path]) -> dict[str, object]:
    """What decides what the compiler makes of the lab's own ``files``."""
    sources = {file.name: read_c_source(file) for file in files}
    return {"compiler": toolchain.version, "flags": flags, "sources": sources}


def lab_files(context: BuildContext, name: str) -> tuple[Toolchain, list[Path], list[Path]]:
    """The compiler of ``images/NAME``, the folders of its headers, and the files that it is made of."""
    main = data_dir("images") / name
    folders = [main.parent, data_dir("images") / "guest", guest_headers(context)]
    return guest_toolchain(context), folders, [main, *included(read_c_source(main), folders)]


def compile_sources(
    toolchain: Toolchain,
    arch: str,
    files: Sequence[Path],
    folders: Sequence[Path],
    target: Path,
    flags: Sequence[str] = STATIC,
) -> None:
    """Compile and link ``files`` for ``arch`` as ``target``. Raises BuildError with the compiler's first complaint."""
    sources = [str(file) for file in files if file.suffix in COMPILED]
    # Libraries apply to the objects before them.
    arguments = [*(f"-I{folder}" for folder in folders), "-o", str(target), *sources, *flags]
    argv = [toolchain.program("gcc"), ARCHITECTURES[arch].gcc_flag, *arguments]
    finished = run(argv, time_limit=COMPILE_LIMIT, environment=compiling_in(target.parent))
    if finished.status != 0:
        without = "there is no C library: use the functions of runtime.h" if "-static" in flags else _IN_A_LIBRARY
        raise compile_error(files[0].name, finished, without if folders else "")
