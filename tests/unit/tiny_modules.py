# SPDX-License-Identifier: GPL-2.0-only
"""A module and a kernel's build system in small: what builds in a tenth of a second."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from host_toolchain import HOST_TOOLCHAIN

from orchestrator.artifacts.module_source import ModuleSource
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.kernels import kernels

_TINY = Path(__file__).parent / "artifacts" / "tiny"


def tiny_module(changes: Mapping[str, str], origins: Mapping[str, Path] | None = None) -> ModuleSource:
    """The small module with some of its files changed, which come from elsewhere."""
    files = {path.name: path.read_text() for path in sorted((_TINY / "module").iterdir())}
    return ModuleSource("lab_tiny", {**files, **changes}, origins or {})


def make_module(path: Path, depends: str = "") -> Path:
    """A file that is a module to whoever reads what it depends on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    argv = ["gcc", "-c", f'-DDEPENDS="{depends}"', "-o", str(path), str(_TINY / "modinfo.c")]
    subprocess.run(argv, check=True, capture_output=True)
    return path


def tiny_kernel(root: Path) -> Kernel:
    """Unpacked packages of a kernel that is all headers."""
    headers = root / "usr/src/linux-headers-1.0"
    headers.mkdir(parents=True)
    makefile = shutil.copy(_TINY / "headers" / "Makefile", root / "usr/src")
    spec = kernels()["debian-amd64"]
    return Kernel(spec, "1.0", "a-key", root / "image", root, headers, Path(makefile), {}, {}, HOST_TOOLCHAIN)
