# SPDX-License-Identifier: GPL-2.0-only
"""The headers of a kernel as a disk of a guest, for tools that compile their programs there."""

from __future__ import annotations

import shutil
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.squashfs import OPTIONS, pack
from orchestrator.host_packages import check_installed

_INCLUDED = ("include", "arch/x86/include")


def kernel_headers(context: BuildContext, kernel: Kernel) -> Path:
    """A squashfs of the headers that programs for a kernel include: its source's, and those that its build has made."""

    def build(file: Path) -> None:
        check_installed("image-packages.txt", "packing a kernel's headers")
        context.say(f"packing the headers of {kernel.release}")
        folder = file.parent / "headers"
        for part in _INCLUDED:
            for source in dict.fromkeys((kernel.headers_makefile.parent / part, kernel.headers / part)):
                if source.is_dir():
                    shutil.copytree(source, folder / part, symlinks=True, dirs_exist_ok=True)
        pack(folder, file, f"the headers of {kernel.spec.name}")
        shutil.rmtree(folder)

    inputs = {"kernel": kernel.key, "folders": list(_INCLUDED), "options": list(OPTIONS)}
    return context.cache.obtain_file(
        "kernel-headers", inputs, f"headers of {kernel.spec.name}", "headers.squashfs", build
    )
