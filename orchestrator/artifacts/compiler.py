# SPDX-License-Identifier: GPL-2.0-only
"""The host's C compiler: which it is, and the small freestanding programs it makes for the guest."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.workshop import Workshop
from orchestrator.errors import BuildError, HostError
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


@lru_cache(maxsize=1)
def compiler_version() -> str:
    """The compiler's own first line, part of the key of all that it makes. Raises HostError where there is none."""
    finished = run(["gcc", "--version"], time_limit=_COMPILE_LIMIT)
    if finished.status != 0:
        raise HostError("gcc does not run", detail=finished.complaint())
    return finished.stdout.splitlines()[0]


def build_environment() -> dict[str, str | None]:
    """The environment of a build, without what the user has set there: KCFLAGS, ARCH, CPATH and their like.

    They would change what is built, and nothing in the cache's key would tell.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**dict.fromkeys(os.environ), **kept, "LC_ALL": "C"}


def guest_programs(workshop: Workshop, arch: str) -> Artifact:
    """``init``, ``agent`` and the benchmarks of ``images/guest``, as static programs for ``arch``."""
    source = data_dir("images") / "guest"
    shared = sorted(source.glob("runtime.*"))
    mains = [p for p in sorted(source.glob("*.c")) if p not in shared]
    inputs = {
        "arch": arch,
        "compiler": compiler_version(),
        "flags": _FLAGS,
        "sources": {p.name: p.read_text() for p in (*mains, *shared)},
    }

    def build(folder: Path) -> None:
        workshop.say(f"compiling the guest's programs ({arch})")
        for main in mains:
            argv = ["gcc", _WIDTH[arch], *_FLAGS, "-o", str(folder / main.stem), main.name, "runtime.c"]
            finished = run(argv, time_limit=_COMPILE_LIMIT, cwd=source, environment=build_environment())
            if finished.status != 0:
                raise BuildError(f"{main} does not compile", detail=finished.complaint())

    return workshop.cache.obtain("programs", inputs, f"guest programs, {arch}", build)
