# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's output tree, configured and prepared up to its first object, made once in a guest and cached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.build_source import PackedSource
from orchestrator.artifacts.image_build import EPOCH
from orchestrator.artifacts.images import PackedImage
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.unattended import FOLDER, OUTPUT, STATUS, progress, unattended_scripts, write_work
from orchestrator.catalog.cpus import cpus
from orchestrator.errors import BuildError
from orchestrator.guest.accelerator import choose_accelerator
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine

_KIND = "prepared-builds"
_FILE = "build.tar"
_SCRIPT = "prepare_build"
_SHARED = ("system.sh", "kernel_make.sh")
_MEMORY_MIB = 1024
_SILENCE_LIMIT = 1800.0
_QUOTED = 15

TREE_DATE = EPOCH + 24 * 3600
"""The time of all files in the tree, in seconds since the epoch: a day later than the source."""
DATE = TREE_DATE + 3600
"""The time that a guest's clock is set to: later than the tree's files."""


@dataclass(frozen=True)
class PreparedBuild:
    """An archive (tar) of the tree; ``key`` names what it was made from."""

    key: str
    file: Path


@dataclass(frozen=True)
class PreparationInputs:
    """The image with the compiler, the kernel's source, drivers for what the guest mounts, its kernel's initramfs."""

    image: PackedImage
    source: PackedSource
    drivers: Mapping[str, bytes | Path]
    initramfs: Path


def prepared_build(
    context: BuildContext, kernel: Kernel, inputs: PreparationInputs, watch: Callable[[Guest], None]
) -> PreparedBuild:
    """The tree of the smallest kernel of ``kernel``'s architecture, as the image's compiler makes it.

    It is made in a guest of that kernel; the result does not depend on the kernel. ``watch`` is called with the guest
    before it runs. Raises GuestError, and BuildError with make's last lines.
    """
    image, source = inputs.image, inputs.source

    def show_progress(lines: Sequence[str]) -> None:
        for words in filter(None, map(progress, lines)):
            context.say(f"preparing a kernel's build: {words[:100]}")

    def make(folder: Path) -> None:
        context.say(f"preparing a kernel's build in a guest ({kernel.spec.arch}): three to six minutes, emulated")
        settings = {"arch": kernel.spec.arch, "date": DATE, "tree_date": TREE_DATE}
        files = {
            "root.squashfs": image.squashfs,
            "source.squashfs": source.file,
            **shared_scripts(*_SHARED),
            **inputs.drivers,
        }
        whole = folder / "initramfs"
        with whole.open("wb") as target:
            write_work(target, inputs.initramfs, _SCRIPT, settings, files)
        guest = Guest(_machine(kernel, whole), folder, "guest")
        guest.say = context.say
        watch(guest)
        try:
            guest.boot(_SILENCE_LIMIT, show_progress)
            if guest.get(STATUS) != b"0":
                output = guest.get(OUTPUT).decode("ascii", errors="replace").splitlines()[-_QUOTED:]
                raise BuildError(f"a kernel's build cannot be prepared with image {image.name}", detail=output)
            (folder / _FILE).write_bytes(guest.get(f"{FOLDER}/{_FILE}"))
        finally:
            guest.kill()
            whole.unlink()

    scripts = {name: (unattended_scripts() / name).read_text() for name in (f"{_SCRIPT}.sh", *_SHARED)}
    key = {
        "arch": kernel.spec.arch,
        "image": image.key,
        "source": source.key,
        "scripts": scripts,
        "dates": [TREE_DATE, DATE],
    }
    found = context.cache.obtain(_KIND, key, f"prepared kernel build, {kernel.spec.arch}", make)
    return PreparedBuild(found.key, found.path / _FILE)


def shared_scripts(*names: str) -> dict[str, bytes | Path]:
    """Scripts that other scripts include, by the names used there."""
    return {name: unattended_scripts() / name for name in names}


def _machine(kernel: Kernel, whole: Path) -> Machine:
    model = next(model for model in cpus().values() if kernel.spec.unsupported_reason(model) is None)
    return Machine(
        cpu=model,
        kernel=kernel.image,
        initramfs=whole,
        memory_mib=_MEMORY_MIB,
        timing=choose_accelerator("auto").name,
        drivers_built_in=kernel.drivers_built_in,
        smp_kernel=kernel.smp,
        extra_parameters=tuple(kernel.spec.kernel_parameters),
    )
