# SPDX-License-Identifier: GPL-2.0-only
"""The small freestanding programs that are compiled for guests."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.inclusion import included, read_source
from orchestrator.artifacts.toolchain import Toolchain, guest_toolchain
from orchestrator.errors import BuildError, ConfigError
from orchestrator.paths import data_dir
from orchestrator.process import run

_FLAGS = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fcf-protection=none"),
    *("-fno-asynchronous-unwind-tables", "-fno-pie", "-no-pie", "-static", "-nostdlib"),
    "-Wl,--build-id=none,-z,noexecstack",
)
_WIDTH = {"i386": "-m32", "x86_64": "-m64"}
_COMPILE_LIMIT = 60.0
_PLACE = re.compile(r"(/.+?:\d+)(?::\d+)?: (?:fatal )?error")


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


def workload_program(context: BuildContext, arch: str, file: Path) -> Path:
    """A user's C file, which defines ``workload()``, as a static program that times it (``images/workload``).

    Raises BuildError with the compiler's words, ConfigError for a file that cannot be read.
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
    inputs = {
        "arch": arch,
        "compiler": toolchain.version,
        "flags": _FLAGS,
        "sources": {str(other): read_source(other) for other in files},
    }

    def build(target: Path) -> None:
        _compile(toolchain, arch, files, folders, target / "workload", "-Wno-error")

    return context.cache.obtain("workloads", inputs, f"{file.name}, {arch}", build).path / "workload"


def compile_program(context: BuildContext, arch: str, main: Path, target: Path) -> None:
    """Compile a freestanding program that includes what it needs of ``images/guest``. Raises BuildError."""
    folder = data_dir("images") / "guest"
    _compile(guest_toolchain(context), arch, [main, *included(read_source(main), [folder])], [folder], target)


def _compile(
    toolchain: Toolchain, arch: str, files: Sequence[Path], folders: Sequence[Path], target: Path, *flags: str
) -> None:
    sources = [str(file) for file in files if file.suffix in (".c", ".S")]
    wanted = [*_FLAGS, *flags, *(f"-I{folder}" for folder in folders)]
    argv = [toolchain.program("gcc"), _WIDTH[arch], *wanted, "-o", str(target), *sources]
    finished = run(argv, time_limit=_COMPILE_LIMIT, environment=compiling_in(target.parent))
    if finished.status != 0:
        words = finished.complaint()
        place = next((found for line in words if (found := _PLACE.match(line))), None)
        hint = "there is no C library: runtime.h has what there is" if folders else ""
        raise BuildError(f"{files[0].name} does not compile", where=place[1] if place else "", detail=words, hint=hint)
