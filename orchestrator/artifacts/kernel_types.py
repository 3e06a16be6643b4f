# SPDX-License-Identifier: GPL-2.0-only
"""vmlinux.h: a kernel's types in C, written by bpftool from the kernel's type information (BTF)."""

from __future__ import annotations

from pathlib import Path

from orchestrator.artifacts import vmlinux
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.kernels import Kernel
from orchestrator.errors import BuildError
from orchestrator.process import run

_BPFTOOL = "/usr/sbin/bpftool"
_NAME = "vmlinux.h"
_ZSTD = b"\x28\xb5\x2f\xfd"
_APPENDED = 4
"""Bytes of the uncompressed size, which the kernel's build appends."""
_LIMIT = 120.0


def kernel_types(context: BuildContext, kernel: Kernel) -> Path:
    """The folder with ``vmlinux.h`` of a kernel with type information.

    Raises BuildError where its image cannot be uncompressed or has none. Needs ``bpf-compiler-packages.txt``.
    """

    def build(target: Path) -> None:
        context.say(f"writing {_NAME} of {kernel.spec.name}")
        image = (kernel.code_folder or kernel.headers) / "vmlinux"
        if not image.is_file():
            image = target / "vmlinux"
            _uncompress(kernel, image)
        argv = [_BPFTOOL, "btf", "dump", "file", str(image), "format", "c"]
        finished = run(argv, time_limit=_LIMIT, environment=compiling_in(target))
        if finished.status != 0:
            raise BuildError(f"bpftool finds no types in {kernel.spec.name}", detail=finished.complaint())
        (target / _NAME).write_text(finished.stdout)
        (target / "vmlinux").unlink(missing_ok=True)

    return context.cache.obtain("vmlinux", {"types": kernel.key}, f"types of {kernel.spec.name}", build).path


def _uncompress(kernel: Kernel, target: Path) -> None:
    """Debian's images of Linux 6.12 are compressed with zstd, which Python 3.11 cannot unpack."""
    image = kernel.packaged or kernel.image
    payload = vmlinux.payload(image.read_bytes())
    if payload is None or not payload.startswith(_ZSTD):
        raise BuildError(f"the image of {kernel.spec.name} cannot be uncompressed: its types are not known")
    packed = target.with_suffix(".zst")
    packed.write_bytes(payload[:-_APPENDED])
    finished = run(["zstd", "-q", "-d", str(packed), "-o", str(target)], time_limit=_LIMIT)
    packed.unlink()
    if finished.status != 0:
        raise BuildError(f"the image of {kernel.spec.name} cannot be uncompressed", detail=finished.complaint())
