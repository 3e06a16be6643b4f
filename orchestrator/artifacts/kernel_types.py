# SPDX-License-Identifier: GPL-2.0-only
"""vmlinux.h: a kernel's types in C, written by bpftool from the kernel's type information (BTF)."""

from __future__ import annotations

from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.kernels import Kernel
from orchestrator.errors import BuildError
from orchestrator.process import run

_BPFTOOL = "/usr/sbin/bpftool"
_NAME = "vmlinux.h"
_LIMIT = 120.0


def kernel_types(context: BuildContext, kernel: Kernel) -> Path:
    """The folder with ``vmlinux.h`` of a kernel with type information.

    Raises BuildError where its image could not be uncompressed or has none. Needs ``bpf-compiler-packages.txt``.
    """

    def build(target: Path) -> None:
        context.say(f"writing {_NAME} of {kernel.spec.name}")
        image = (kernel.code_folder or kernel.headers) / "vmlinux"
        if not image.is_file():
            raise BuildError(f"the image of {kernel.spec.name} cannot be uncompressed: its types are not known")
        argv = [_BPFTOOL, "btf", "dump", "file", str(image), "format", "c"]
        finished = run(argv, time_limit=_LIMIT, environment=compiling_in(target))
        if finished.status != 0:
            raise BuildError(f"bpftool finds no types in {kernel.spec.name}", detail=finished.complaint())
        (target / _NAME).write_text(finished.stdout)

    return context.cache.obtain("vmlinux", {"types": kernel.key}, f"types of {kernel.spec.name}", build).path
