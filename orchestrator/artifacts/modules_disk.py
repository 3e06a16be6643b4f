# SPDX-License-Identifier: GPL-2.0-only
"""The modules of a kernel as a disk of a guest, with depmod's index."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.module_files import BUILT_IN, lists_folder, module_files
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.squashfs import OPTIONS, pack
from orchestrator.errors import BuildError, UsageError
from orchestrator.files import sha256_of
from orchestrator.guest.machine import DataDisk
from orchestrator.host_packages import check_installed
from orchestrator.process import run

_DEPMOD = "/usr/sbin/depmod"
_PACKED_MODULES = "kernel-modules"


def kernel_modules(context: BuildContext, kernel: Kernel) -> Path:
    """A squashfs of a kernel's modules with depmod's index. Raises UsageError if it has none, BuildError."""
    folder, files = lists_folder(kernel), module_files(kernel)
    lists = [folder / name for name in ("modules.order", BUILT_IN, f"{BUILT_IN}.modinfo") if (folder / name).is_file()]
    if not files:
        hint = "leave out --kernel-modules (in a test's mark: kernel_modules), or use a Debian kernel"
        raise UsageError(f"kernel '{kernel.spec.name}' has no modules: everything is built in", hint=hint)
    content = _digests(kernel)

    def build(squashfs: Path) -> None:
        for name in ("image-packages.txt", "module-packages.txt"):
            check_installed(name, "a guest with its kernel's own modules")
        context.say(f"packing the modules of {kernel.spec.name}")
        base = squashfs.with_name("base")
        tree = base / "lib/modules" / kernel.release
        for name, file in files.items():
            copy = tree / "kernel" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            if content.get(name, digest := sha256_of(copy)) != digest:
                raise BuildError(f"module {name} has changed while the modules were packed", hint="run it again")
        for file in lists:
            shutil.copyfile(file, tree / file.name)
        what = f"the modules of {kernel.spec.name}"
        depmod = run([_DEPMOD, "-b", str(base), kernel.release], time_limit=1800)
        depmod.or_raise(BuildError, f"{what} cannot be packed")
        pack(tree, squashfs, what)
        shutil.rmtree(base)

    inputs = {"kernel": kernel.key, "content": content, "options": list(OPTIONS)}
    label = f"modules of {kernel.spec.name}"
    return context.cache.obtain_file(_PACKED_MODULES, inputs, label, "modules.squashfs", build)


def are_as_packed(cache: Cache, disks: Iterable[DataDisk], kernel: Kernel) -> bool:
    """Whether a kernel's modules are still the files that one of these disks has; True without such a disk."""
    packed = (cache.artifact(disk.file.parent) for disk in disks)
    of_modules = [artifact.inputs for artifact in packed if artifact is not None and artifact.kind == _PACKED_MODULES]
    return all(inputs["content"] == _digests(kernel) for inputs in of_modules)


def _digests(kernel: Kernel) -> dict[str, str]:
    """The SHA-256 of each module in a user's tree, which may be rebuilt without its kernel; empty for packages."""
    return {} if kernel.packages else {name: sha256_of(file) for name, file in module_files(kernel).items()}
