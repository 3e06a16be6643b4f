# SPDX-License-Identifier: GPL-2.0-only
"""The plugin of QEMU's that counts instructions (``images/plugin``), compiled for this host."""

from __future__ import annotations

from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.inclusion import included, read_source
from orchestrator.artifacts.toolchain import guest_toolchain
from orchestrator.errors import BuildError
from orchestrator.paths import data_dir
from orchestrator.process import run

_NAME = "count.so"
# Its functions of the C library are those of the QEMU that loads it: neither headers nor start files are needed.
_FLAGS = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-m64"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fvisibility=hidden"),
    *("-fPIC", "-shared", "-nostdlib", "-Wl,--build-id=none,-z,noexecstack"),
)
_COMPILE_LIMIT = 60.0


def counting_plugin(context: BuildContext) -> Path:
    """The plugin's file, by the compiler that makes the guests' programs. Raises HostError, BuildError."""
    images, toolchain = data_dir("images"), guest_toolchain(context)
    folders = [images / "plugin", images / "guest"]
    main = folders[0] / "count.c"
    files = [main, *included(read_source(main), folders)]
    inputs = {
        "compiler": toolchain.version,
        "flags": _FLAGS,
        "sources": {file.name: read_source(file) for file in files},
    }

    def build(target: Path) -> None:
        context.say("compiling the plugin that counts instructions")
        sources = [str(file) for file in files if file.suffix == ".c"]
        places = [f"-I{folder}" for folder in folders]
        argv = [toolchain.program("gcc"), *_FLAGS, *places, "-o", str(target / _NAME), *sources]
        finished = run(argv, time_limit=_COMPILE_LIMIT, environment=compiling_in(target))
        if finished.status != 0:
            raise BuildError(f"{main.name} does not compile", detail=finished.complaint())

    return context.cache.obtain("plugins", inputs, "QEMU's counting plugin", build).path / _NAME
