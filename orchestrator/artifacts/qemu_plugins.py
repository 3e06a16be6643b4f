# SPDX-License-Identifier: GPL-2.0-only
"""QEMU's plugins, which count what guests execute."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from orchestrator.arch import HOST
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import compile_sources, lab_files, lab_inputs

# Its C library functions come from the QEMU that loads it: it needs neither headers nor start files.
_PLUGIN_FLAGS = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-m64"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fvisibility=hidden"),
    *("-fPIC", "-shared", "-nostdlib", "-Wl,--build-id=none,-z,noexecstack"),
)

_PLUGINS = {"count": "counting plugin", "cover": "coverage plugin", "cpus": "plugin for several CPUs"}


def qemu_plugin(context: BuildContext, name: Literal["count", "cover", "cpus"]) -> Path:
    """A plugin of ``images/plugin``, built by the compiler of the guest programs. Raises HostError, BuildError."""
    toolchain, folders, files = lab_files(context, f"plugin/{name}.c")
    inputs = lab_inputs(toolchain, _PLUGIN_FLAGS, files)
    compile_it = partial(compile_sources, toolchain, HOST.name, files, folders, flags=_PLUGIN_FLAGS)
    return context.cache.obtain_file("plugins", inputs, f"QEMU's {_PLUGINS[name]}", f"{name}.so", compile_it)
